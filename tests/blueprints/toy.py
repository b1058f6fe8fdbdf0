"""Any blueprint at a size that runs in milliseconds: the same components, layers of every kind once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZES: Mapping[str, int] = {
    "dim": 32, "heads": 4, "head_dim": 8, "vocab": 50, "kv_heads": 2, "hidden": 24, "shared_hidden": 24, "latent": 16,
    "experts": 8, "top_k": 2, "groups": 2, "top_groups": 1, "q_rank": 12, "kv_rank": 8, "rope_dim": 4, "nope_dim": 8,
    "value_dim": 8, "key_heads": 2, "value_heads": 4, "key_dim": 8, "max_tokens": 16, "window": 4, "dims": 4,
    "decay_rank": 8, "index_heads": 2, "index_dim": 8, "index_top_k": 2, "out_groups": 2, "out_rank": 4, "ratio": 2,
    "original": 8, "types": 2,
}  # fmt: skip
ALONE = ("kv_heads", "groups", "top_groups")  # of which 1 means something of its own


def shrunk(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved blueprint with its sizes made small; what is off stays off."""
    small = _smaller(resolved)
    for stack in [small, *(small[name] for name in ("encoder", "decoder") if small.get(name))]:
        if "layers" in stack:
            stack["layers"] = _each_once(stack["layers"])
    return small


def _smaller(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sized(key, inner) for key, inner in value.items()}
    return value


def _sized(key: str, value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool)
    if key not in SIZES or not number or value == 0 or (key in ALONE and value == 1):
        return _smaller(value)
    return SIZES[key]


def _each_once(layers: Any) -> Any:
    """Two layers, or one of each kind in the order of their first."""
    if isinstance(layers, int):
        return min(layers, 2)
    names = [next(iter(item)) if isinstance(item, Mapping) else item for item in layers]
    return list(dict.fromkeys(names))
