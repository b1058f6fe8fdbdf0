"""What one component costs alone, at given sizes: its parameters and the matrix products of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explorer.assembly.construction import construction, dtype_of
from explorer.assembly.position import Position
from explorer.assembly.residual import Residual
from explorer.assembly.sites import Sites
from explorer.blueprint.load import load
from explorer.blueprint.options import value_node
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.tree import plain
from explorer.blueprint.workload import DTYPE_BYTES, Workload
from explorer.cost.costs import KvBytes
from explorer.cost.counting import count
from explorer.cost.subject import numel
from explorer.cost.trace import Trace
from explorer.errors import UsageError, Where
from explorer.registry.chosen import Chosen
from explorer.registry.registry import Registry

ALONE: Mapping[str, Any] = {
    "norm": "none",
    "placement": "none",
    "residual": "none",
    "attention": "none",
    "feedforward": "none",
}
"""Fields of a block around one attention or feed-forward, and nothing else."""


@dataclass(frozen=True)
class Sizes:
    """The block around the component, and how many tokens of one sequence pass through it."""

    dim: int = 4096
    heads: int = 32
    layers: int = 32
    vocab: int = 128256
    tokens: int = 2048
    dtype: str = "bfloat16"

    def fields(self) -> dict[str, Any]:
        """As fields of a blueprint, without depth and vocabulary."""
        return {"dim": self.dim, "heads": self.heads, "head_dim": max(self.dim // self.heads, 1)}

    def vectors(self) -> Tensor:
        return torch.empty((1, self.tokens, self.dim), dtype=dtype_of(self.dtype), device="meta")


@dataclass(frozen=True)
class InstanceCost:
    """Distinct parameters; FLOPs of the matrix products of one forward, with the full attention rectangle and with
    visible pairs only (None: not known). kv: of an attention. where: which of several unequal instances it is.
    """

    params: int
    matmul_flops: int | None
    matmul_flops_exact: int | None
    kv: KvBytes | None = None
    where: str | None = None


def instance_cost(kind: str, written: str, sizes: Sizes, registry: Registry) -> InstanceCost:
    """One component, written in short form (`gqa:kv_heads=8`), counted on meta.

    Raises: BlueprintError for parameters that it does not take or lacks, RefusedError for sizes that it refuses,
    UsageError for a dtype that is none.
    """
    if sizes.dtype not in DTYPE_BYTES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, not {sizes.dtype}")
    return _COUNTS[kind](kind, written, sizes, registry)


def _in_a_block(kind: str, written: str, sizes: Sizes, registry: Registry) -> InstanceCost:
    fields = {**ALONE, **sizes.fields(), "layers": sizes.layers, "vocab": sizes.vocab}
    plan = load({**fields, kind: _value(written)}, registry=registry).plan()
    counted = count(plan, [Workload("prefill", 1, sizes.tokens, dtype=sizes.dtype)])
    (cost,) = (cost for cost in counted.costs if cost.scope == "block")
    kv = cost.kv if kind == "attention" else None
    return InstanceCost(counted.params.blocks[0].params, cost.matmul_flops, cost.matmul_flops_exact, kv)


def _alone(kind: str, written: str, sizes: Sizes, registry: Registry) -> InstanceCost:
    plan = _plan(kind, written, sizes, registry)
    chosen = vars(plan.stack.base)[kind]
    base = plan.stack.base
    menu = {"dim": sizes.dim, "heads": base.heads, "head_dim": base.head_dim, "causal": base.causal}
    with construction(0, "meta", sizes.dtype):
        built = chosen.build(menu)
    with torch.no_grad(), Trace() as trace:
        _CALLS[kind](built, chosen, sizes, base.head_dim)
    counts = trace.counts()
    return InstanceCost(numel(built), counts.matmul_flops, counts.matmul_flops_exact)


def _call_norm(built: nn.Module, chosen: Chosen, sizes: Sizes, head_dim: int) -> None:
    built(sizes.vectors())


def _call_activation(built: nn.Module, chosen: Chosen, sizes: Sizes, head_dim: int) -> None:
    built(*(sizes.vectors() for _ in range(chosen.maker().inputs)))


def _call_position(built: Position, chosen: Chosen, sizes: Sizes, head_dim: int) -> None:
    tokens = min(sizes.tokens, built.max_tokens or sizes.tokens)
    x, positions = sizes.vectors()[:, :tokens], torch.arange(tokens, device="meta")
    built.embed(x, positions)
    heads = torch.empty((1, sizes.heads, tokens, head_dim), dtype=x.dtype, device="meta")
    built.rotate(heads, positions)
    built.bias(tokens, tokens, 0)


_CALLS: Mapping[str, Callable[[Any, Chosen, Sizes, int], None]] = {
    "norm": _call_norm,
    "activation": _call_activation,
    "position": _call_position,
}


def _at_the_last_site(kind: str, written: str, sizes: Sizes, registry: Registry) -> InstanceCost:
    """A residual may cost more the deeper it stands: the last site says the most."""
    plan = _plan(kind, written, sizes, registry)
    with construction(0, "meta", sizes.dtype):
        sites = list(_residuals(plan))
    with torch.no_grad():
        state = sites[0].enter(sizes.vectors())
        for residual in sites:
            with Trace() as trace:
                x, state = residual.read(state)
                state = residual.write(state, torch.empty_like(x))
    counts = trace.counts()
    where = f"the last of {len(sites)} sites in {sizes.layers} layers"
    return InstanceCost(numel(sites[-1]), counts.matmul_flops, counts.matmul_flops_exact, where=where)


def _residuals(plan: ModelPlan) -> Iterator[Residual]:
    places = Sites(plan, plan.stack)
    for layer in range(len(plan.stack.layers)):
        for site in places.of(layer):
            yield plan.stack.residual.build({"dim": plan.dim, "site": site})


def _plan(kind: str, written: str, sizes: Sizes, registry: Registry) -> ModelPlan:
    fields = {**sizes.fields(), "layers": sizes.layers}
    return load({**fields, kind: _value(written)}, registry=registry).plan()


def _value(written: str) -> object:
    """The short form as a blueprint holds it; a problem is then named by its field, not by an option nobody gave."""
    return plain(value_node(written, Where(written)))


_COUNTS: Mapping[str, Callable[[str, str, Sizes, Registry], InstanceCost]] = {
    "norm": _alone,
    "activation": _alone,
    "position": _alone,
    "attention": _in_a_block,
    "feedforward": _in_a_block,
    "residual": _at_the_last_site,
}
