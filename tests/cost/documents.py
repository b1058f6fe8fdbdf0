"""Blueprints of any installed components, with uneven stacks, one stack or two."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from explorer.registry.loading import load_registry
from explorer.testing.toy import Toy

REGISTRY = load_registry()
KINDS = ("norm", "activation", "attention", "feedforward", "position", "residual")
BLOCK: dict[str, list[Any]] = {
    "placement": ["pre", "post", "sandwich", "res_post", "none"],
    "layout": ["sequential", "sequential", {"parallel": {"shared_norm": True}}, {"parallel": {"shared_norm": False}}],
    "bias": [True, False],
    "window": [None, None, 2],
    "dropout": [{}, {}, {"attention": 0.1, "activation": 0.1, "sublayer": 0.1, "embedding": 0.1}],
}
LAYERS: list[Any] = [1, 3, ["a", {"b": 2}], ["a", "b", "a"], ["block", "a"]]
PHASES = {
    "prefill": {"phase": "prefill", "tokens": 5},
    "behind a context": {"phase": "prefill", "tokens": 3, "context": 7},
    "decode": {"phase": "decode", "context": 6},
    "train": {"phase": "train", "tokens": 5},
}


@cache
def components(kind: str) -> list[dict[str, Any]]:
    """Every installed one, with small values of its required parameters."""
    return [{c.label: dict(Toy(c, REGISTRY).params)} for c in REGISTRY.components(kind)]


def document(random: Random) -> dict[str, Any]:
    """A blueprint of any components, with uneven stacks, one stack or two."""

    def some(names: tuple[str, ...] | list[str], share: float) -> dict[str, Any]:
        return {name: value(name) for name in names if random.random() < share}

    def value(name: str) -> Any:
        if name in BLOCK:
            return random.choice(BLOCK[name])
        return random.choice(components(name))

    def block() -> dict[str, Any]:
        return some([*KINDS[:4], *BLOCK], 0.2)

    def stack() -> dict[str, Any]:
        return {"layers": random.choice(LAYERS), **some(["residual"], 0.7), **some([*KINDS[:5], *BLOCK], 0.35)}

    top = {
        "dim": 16,
        "heads": 4,
        "vocab": random.choice([None, 24]),
        "tie_embeddings": False,
        "blocks": {"a": block(), "b": block()},
    }
    if top["vocab"] and random.random() < 0.4:
        top["tie_embeddings"] = True
    if random.random() < 0.3:
        return {**top, "encoder": stack(), "decoder": stack()}
    one = stack()
    if top["vocab"] is None and random.random() < 0.3:
        del one["layers"]  # blocks alone
    return {**top, **one}
