"""Toy components (signatures that nothing builds, so without torch), and short ways to load blueprints with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt

from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.changes import Scope
from explorer.blueprint.fields import BLOCK, FIELDS, MODEL
from explorer.blueprint.load import load
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import plain_value
from explorer.errors import ExplorerError
from explorer.registry.chosen import Chosen
from explorer.registry.kinds import KINDS
from explorer.registry.makers import Activation, Norm
from explorer.registry.registry import Component, Origin, Package, Registry
from explorer.registry.values import Width

Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]


def rmsnorm(dim: int, *, eps: Positive = 1e-6, offset: float = 0.0) -> None: ...
def layernorm(dim: int, *, eps: Positive = 1e-5, bias: bool = True) -> None: ...
def plain() -> None: ...
def of_depth(site: int) -> None: ...


def leaky(*, slope: float = 0.01) -> None: ...


def mha(dim: int, heads: int, causal: bool, window: int, bias: bool, *, qk_norm: Norm | None = None) -> None: ...
def mha_naive(dim: int, heads: int) -> None: ...


def gqa(
    dim: int,
    heads: int,
    bias: bool,
    *,
    kv_heads: Count,
    scale: Positive | None = None,
    qk_norm: Norm | None = None,
    qk_norm_over: Literal["head", "all"] = "head",
) -> None: ...


def mla(dim: int, *, kv_rank: Count = 512, norm: Norm = "rmsnorm", act: Activation | None = None) -> None: ...  # type: ignore[assignment]
def dense(dim: int, activation: object, bias: bool, *, hidden: Width | None = None) -> None: ...
def rope(head_dim: int, *, base: Positive = 10000.0, at: Literal["start", "end"] = "start") -> None: ...
def learned(dim: int, *, max_tokens: Count = 2048) -> None: ...
def mhc(dim: int, *, streams: Count = 4) -> None: ...


TOYS: Mapping[str, Mapping[str, Callable[..., Any] | None]] = {
    "norm": {"rmsnorm": rmsnorm, "layernorm": layernorm, "none": plain},
    "activation": {"swiglu": plain, "relu": plain, "gelu": plain, "tanh": plain, "leaky": leaky},
    "attention": {"mha": mha, "mha_naive": mha_naive, "gqa": gqa, "mla": mla, "none": None},
    "residual": {"add": plain, "none": plain, "deepnorm": of_depth, "mhc": mhc},
    "feedforward": {"dense": dense, "none": None},
    "position": {"rope": rope, "learned": learned, "none": plain},
}


def package(name: str, offers: Mapping[str, Mapping[str, Callable[..., Any] | None]]) -> Package:
    """A plugin package of the distribution ``NAME-dist 1.0``."""
    origin = Origin(name, f"{name}-dist", "1.0")
    found = [Component(KINDS[kind], n, c, origin) for kind, options in offers.items() for n, c in options.items()]
    return Package(origin, tuple(found))


Load = Callable[..., Blueprint]


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The toys as a plugin package."""
    return Registry((package("toys", TOYS),))


@pytest.fixture
def read(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """``read(text)``: a blueprint from ``0.yaml``. Of several texts each is the base of the next, ``1.yaml`` ..."""
    monkeypatch.chdir(tmp_path)

    def call(*sources: str | Mapping[str, Any], **options: Any) -> Blueprint:
        chosen = options.pop("registry", registry)
        if isinstance(sources[-1], Mapping):
            return load(sources[-1], registry=chosen, **options)
        for index, text in enumerate(sources):
            base = f"base: {index - 1}.yaml\n" if index else ""
            Path(f"{index}.yaml").write_text(f"{text}\n{base}", encoding="utf-8")
        return load(f"{len(sources) - 1}.yaml", registry=chosen, **options)

    return call


@pytest.fixture
def told(read: Load) -> Callable[..., str]:
    """The whole error text of loading a blueprint and making its rows."""

    def call(*sources: str | Mapping[str, Any], **options: Any) -> str:
        with pytest.raises(ExplorerError) as caught:
            read(*sources, **options).combinations()
        return str(caught.value)

    return call


@pytest.fixture
def plugin() -> Callable[..., Package]:
    return package


def field(blueprint: Blueprint, path: str) -> Any:
    """The plain value of a field, or of a parameter below it: ``field(b, "encoder.blocks.local.norm.eps")``."""
    scope, (name, *steps) = _parted(path)
    state = blueprint.state
    level = FIELDS[name].level
    cell = state.cells[scope.stack or "", scope.block or UNNAMED]
    fields = state.model if level == MODEL else cell if level == BLOCK else state.stacks[scope.stack or ""]
    value = fields[name].value
    for step in steps:
        value = value.given(step) if isinstance(value, Chosen) else value[step]
    return plain_value(value)


def _parted(path: str) -> tuple[Scope, list[str]]:
    steps = path.split(".")
    stack = steps.pop(0) if steps[0] in ("encoder", "decoder") else None
    if steps[0] != "blocks":
        return Scope(stack), steps
    return Scope(stack, steps[1]), steps[2:]


@pytest.fixture
def at() -> Callable[[Blueprint, str], Any]:
    return field
