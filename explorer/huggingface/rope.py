"""Rotary positions: `rope_theta` with `rope_scaling`, or all of it in `rope_parameters`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from explorer.errors import did_you_mean
from explorer.huggingface.components import Component, component
from explorer.huggingface.reader import ConfigReader, shown

THETA, PARTIAL, LONGEST = "rope_theta", "partial_rotary_factor", "max_position_embeddings"


@dataclass(frozen=True)
class Rope:
    """How a config rotates. partial: share of a head's channels. score_factor: what DeepSeek multiplies scores by."""

    base: float
    partial: float = 1.0
    scaling: Component | None = None
    score_factor: float = 1.0

    def position(self, head_dim: int, *, at: str = "start", pairing: str = "half") -> Component:
        dims = int(head_dim * self.partial)
        return component(
            "rope",
            base=self.base,
            dims=None if dims == head_dim else dims,
            at=at,
            pairing=pairing,
            scaling=self.scaling,
        )


@dataclass(frozen=True)
class Names:
    """What a family calls its base and its rotated share beside a mapping of rotations, where they have one name, and
    their defaults. partial None: it rotates whole heads.
    """

    theta: float = 10000.0
    partial: float | None = None
    theta_name: str = THETA
    partial_name: str = PARTIAL


def read_rope(config: ConfigReader, head_dim: int, names: Names | None = None, longest: int = 2048) -> Rope:
    """The one rotation of a model. longest: its `max_position_embeddings` where the config has none."""
    return rotation(config, parameters(config), head_dim, names or Names(), longest)


def parameters(config: ConfigReader) -> ConfigReader | None:
    """The mapping of `rope_scaling` or `rope_parameters`."""
    return first_of(config, config.nested("rope_scaling"), config.nested("rope_parameters"))


def first_of(config: ConfigReader, old: ConfigReader | None, new: ConfigReader | None) -> ConfigReader | None:
    """Of two mappings that say the same the older one, as in transformers; only one may say more."""
    if old and new:
        if old.values != new.values:
            config.problem("rope_scaling", "is not what rope_parameters says; leave one of them out")
        new.ignore(*new.values)
    return old or new


def rotation(config: ConfigReader, inner: ConfigReader | None, head_dim: int, names: Names, longest: int) -> Rope:
    """The rotation that a mapping of a config describes, with what stands beside it."""
    longest = config.whole(LONGEST, default=longest)
    base = _one(inner, config, THETA, names.theta_name, names.theta)
    partial = _one(inner, config, PARTIAL, names.partial_name, names.partial or 1.0)
    _check_partial(inner, config, partial, head_dim, names)
    if inner is None:
        return Rope(base, partial)
    kind = inner.text("rope_type", "type", default="default")
    read = _FORMS.get(kind)
    if read is None:
        name = "rope_type" if inner.has("rope_type") else "type"
        known = f"known: {', '.join(_FORMS)}"
        inner.problem(name, f"{shown(kind)} is not supported", did_you_mean(kind, _FORMS), known)
        inner.ignore(*inner.values)
        return Rope(base, partial)
    scaling, score_factor = read(inner, longest)
    return Rope(base, partial, scaling, score_factor)


def _one(inner: ConfigReader | None, config: ConfigReader, name: str, outer_name: str, default: float) -> float:
    """A number of the mapping, or of the config beside it; in both, it must be the same."""
    outside = config.optional_number(outer_name) or default
    if inner is None or not inner.has(name):
        return outside
    inside = inner.number(name, default=default)
    if config.has(outer_name) and inside != outside:
        inner.problem(name, f"{shown(inside)} is not the {shown(outside)} of {outer_name}, which says the same")
    return inside


def _check_partial(
    inner: ConfigReader | None, config: ConfigReader, partial: float, head_dim: int, names: Names
) -> None:
    inside = inner is not None and inner.has(PARTIAL)
    reader, name = (inner, PARTIAL) if inner is not None and inside else (config, names.partial_name)
    dims = int(head_dim * partial)
    if names.partial is None and partial != 1:
        reader.problem(name, f"{shown(partial)} is not supported: this model rotates whole heads")
    elif partial > 1 or dims < 2 or dims % 2:
        reader.problem(name, f"{shown(partial)} of {head_dim} channels are {dims}, and they are rotated in pairs")


_Scaling = tuple[Component | None, float]


def _plain(inner: ConfigReader, longest: int) -> _Scaling:
    return None, 1.0


def _linear(inner: ConfigReader, longest: int) -> _Scaling:
    return component("linear", factor=inner.number("factor", least=1)), 1.0


def _llama3(inner: ConfigReader, longest: int) -> _Scaling:
    scaling = component(
        "llama3",
        factor=inner.number("factor", least=1),
        original=inner.whole("original_max_position_embeddings", default=longest),
        low=inner.number("low_freq_factor"),
        high=inner.number("high_freq_factor"),
    )
    return scaling, 1.0


def _yarn(inner: ConfigReader, longest: int) -> _Scaling:
    original = inner.whole("original_max_position_embeddings", default=longest)
    factor = inner.number("factor", least=1)
    mscale, over_all = (inner.number(name, default=0.0, least=0) for name in ("mscale", "mscale_all_dim"))
    computed = mscale_of(factor, mscale) / mscale_of(factor, over_all) if mscale and over_all else None
    given = inner.optional_number("attention_factor", default=computed)
    scaling = component(
        "yarn",
        factor=factor,
        original=original,
        attention_factor=None if given in (None, mscale_of(factor, 1.0)) else given,
        beta_fast=inner.number("beta_fast", default=32.0),
        beta_slow=inner.number("beta_slow", default=1.0),
        truncate=inner.flag("truncate", default=True),
    )
    return scaling, mscale_of(factor, over_all) ** 2


def mscale_of(factor: float, share: float) -> float:
    """What YaRN multiplies by where a text is `factor` times as long: 1 + 0.1 share ln(factor)."""
    return 0.1 * share * math.log(factor) + 1.0


_FORMS: Mapping[str, Callable[[ConfigReader, int], _Scaling]] = {
    "default": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
