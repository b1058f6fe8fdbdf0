"""Components as a short blueprint writes them: a name, with the parameters that differ from their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Component = str | dict[str, Any]
Fields = dict[str, Any]

_ATTENTION: Mapping[str, Any] = {
    "scale": None,
    "softcap": None,
    "sinks": False,
    "gate": False,
    "qk_norm": None,
    "qk_norm_over": "head",
    "bias": None,
}
_COMPRESSED: Mapping[str, Any] = {"q_rank": None, "out_groups": None, "out_rank": 1024, "sinks": True}
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "rmsnorm": {"eps": 1e-6, "offset": 0, "cast": "llama"},
        "layernorm": {"eps": 1e-5, "bias": True},
        "rope": {"base": 10000, "dims": None, "at": "start", "pairing": "half", "scaling": None},
        "alibi": {"scale": 1},
        "learned": {"max_tokens": 2048},
        "t5_bias": {"buckets": 32, "max_distance": 128},
        "mha": _ATTENTION,
        "gqa": _ATTENTION,
        "mla": {"q_rank": None, "kv_rank": 512, "rope_dim": 64, "value_dim": None, "scale": None, "bias": None},
        "hca": {**_COMPRESSED, "ratio": 128},
        "csa": {**_COMPRESSED, "ratio": 4, "index_heads": 64, "index_dim": 128, "index_top_k": 512},
        "gated_deltanet": {"conv": 4, "key_heads": None, "value_heads": None, "key_dim": None, "value_dim": None},
        "kda": {"conv": 4},
        "dense": {"hidden": None, "bias": None},
        "moe": {
            "shared": 0,
            "shared_hidden": None,
            "shared_gate": False,
            "router": "softmax",
            "select": "score",
            "selection_bias": False,
            "renormalise": True,
            "scale": 1,
            "groups": 1,
            "top_groups": 1,
            "group_score": "top2",
            "bias": None,
        },
        "swiglu_clamped": {"limit": 7, "alpha": 1, "up_offset": 0},
        "mhc": {"streams": 4, "iterations": 20, "leave": "sum", "eps": 1e-6},
    }
)
"""Of the components that configs name, the parameters that an import may leave out."""
FORMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "yarn": {"attention_factor": None, "beta_fast": 32, "beta_slow": 1, "truncate": True},
        "llama3": {"low": 1, "high": 4},
        "linear": {},
        "lm": {"bias": False, "scale": None, "softcap": None},
    }
)
"""The same of the forms of a rotary scaling, and of the head."""


def component(name: str, **parameters: Any) -> Component:
    """`name`, or {name: parameters} without those that are at their default."""
    defaults = DEFAULTS.get(name) or FORMS.get(name, {})
    told = {key: _number(v) for key, v in parameters.items() if key not in defaults or v != defaults[key]}
    return {name: told} if told else name


def _number(value: Any) -> Any:
    """5e5 as 500000."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def dropout(**rates: float) -> Fields | None:
    """The rates that are not 0."""
    return {name: _number(rate) for name, rate in rates.items() if rate} or None


def biases(attention: bool | str, feedforward: bool) -> tuple[bool, bool | str | None, bool | None]:
    """`bias` of a block, of its attention and of its feed-forward; None: as the block says."""
    if attention is True and feedforward:
        return True, None, None
    return False, attention or None, feedforward or None
