"""Blocks that a calibration runs: tiny ones, whose time is the host's, and larger ones that test what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from explorer.assembly.build import build_block
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Row
from explorer.latency.clock import Call
from explorer.latency.runner import Feed, ready
from explorer.prediction.rows import rows_of
from explorer.prediction.working_set import WorkingSet
from explorer.registry.registry import Registry

BLOCK = "block"
_ATTENTION = {"feedforward": "none", "placement": "none"}
_FEEDFORWARD = {"attention": "none", "placement": "none"}
_CLASSIC = {"norm": "layernorm", "activation": "gelu", "position": "none", "bias": True}

TINY: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "naive attention": {**_CLASSIC, **_ATTENTION, "attention": "mha_naive"},
        "attention": {**_CLASSIC, **_ATTENTION, "attention": "mha", "bias": False},
        "rotary attention": {**_CLASSIC, **_ATTENTION, "attention": {"gqa": {"kv_heads": 2}}, "position": "rope"},
        "GELU": {**_CLASSIC, **_FEEDFORWARD},
        "SwiGLU": {**_CLASSIC, **_FEEDFORWARD, "activation": "swiglu", "bias": False},
        "classic block": _CLASSIC,
        "RMSNorm block": {**_CLASSIC, "norm": "rmsnorm", "attention": {"gqa": {"kv_heads": 2}}},
        "naive block, post": {**_CLASSIC, "attention": "mha_naive", "activation": "relu", "placement": "post"},
    }
)
"""What the costs of the host are fitted to: many and few kernels, views and modules, in different mixtures."""

REFILLED = ("SwiGLU", "classic block", "RMSNorm block")
"""Of these, of which the shortest and the longest tell most: timed after a large kernel too."""

HELD_OUT: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "MQA": {**_CLASSIC, **_ATTENTION, "attention": {"gqa": {"kv_heads": 1}}},
        "ReLU": {**_CLASSIC, **_FEEDFORWARD, "activation": "relu"},
        "modern block": {
            "norm": "rmsnorm", "attention": {"gqa": {"kv_heads": 2}}, "position": "rope", "activation": "swiglu",
        },
        "parallel block": {**_CLASSIC, "layout": "parallel"},
    }
)  # fmt: skip
"""No curve and no fit sees these."""
DECODED = ("modern block", "parallel block")
"""Of these, those that decode a token: with more copies than caches hold, which takes memory."""


@dataclass(frozen=True)
class Specimen:
    """One block on one workload. written: its blueprint. copies: of the block, run in turn. registry: of its parts."""

    name: str
    written: Mapping[str, Any]
    workload: Workload
    copies: int = 1
    registry: Registry | None = None

    @cached_property
    def plan(self) -> ModelPlan:
        return load(self.written, registry=self.registry).plan()

    @property
    def key(self) -> str:
        return f"{self.name}, dim {self.plan.dim}: {self.workload.label}"

    @cached_property
    def rows(self) -> list[Row]:
        """What a prediction is made from."""
        return rows_of(self.plan, BLOCK, self.workload, {})

    def copies_for(self, weights: float) -> int:
        """How many copies have so many bytes of weights together; one at least."""
        return max(1, round(weights / max(WorkingSet.of(self.rows).weights, 1)))

    @property
    def around(self) -> WorkingSet:
        """What lies between two uses of the same bytes."""
        return WorkingSet.of(self.rows, self.copies)

    def build(self, device: str) -> list[Call]:
        """The calls that run it, one for each copy."""

        def make(device: str, dtype: Any) -> Any:
            return build_block(self.plan, BLOCK, device=device, dtype=dtype)

        first = ready(make, self.workload, Feed(self.plan.dim), device=device)
        steps = [first, *(first.copied() for _ in range(self.copies - 1))]
        return [step.through(step.module) for step in steps if step.module is not None]


@cache
def tiny(dtype: str) -> tuple[Specimen, ...]:
    """Blocks of width 96 with 12 heads: one token, and one token over 8 in a cache."""
    workloads = (
        Workload("prefill", 1, 1, 1, dtype=dtype).settled(),
        Workload("decode", 1, 1, 8, dtype=dtype).settled(),
    )
    return tuple(
        Specimen(name, {**written, "dim": 96, "heads": 12}, workload)
        for name, written in TINY.items()
        for workload in workloads
    )


@cache
def held_out(dtype: str, most_weights: int) -> tuple[Specimen, ...]:
    """Blocks of widths that no curve was measured at: long prompts, short ones, and one decoded token.

    most_weights: bytes of weights that each decoding block takes in turn, as a decode is measured.
    """
    long, short = Workload("prefill", 2, 512, 512, dtype=dtype), Workload("prefill", 1, 128, 128, dtype=dtype)
    decode = Workload("decode", 1, 1, 256, dtype=dtype).settled()
    decoded = (_held_out(name, 1152, decode) for name in DECODED)
    return (
        *(_held_out(name, 1152, long.settled()) for name in HELD_OUT),
        *(_held_out(name, 640, short.settled()) for name in HELD_OUT),
        *(replace(one, copies=one.copies_for(most_weights)) for one in decoded),
    )


def _held_out(name: str, dim: int, workload: Workload) -> Specimen:
    return Specimen(name, {**HELD_OUT[name], "dim": dim, "heads": dim // 64}, workload)
