"""What one component costs alone, at given sizes: its parameters and the operations and bytes of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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
from explorer.cost.counting import Workbench, count
from explorer.cost.ledger.rows import Counts
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.subject import numel
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


Call = Callable[[], Any]


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
    """Distinct parameters; sums over the operators of one forward (None: not known). kv: of an attention. where: which
    of several unequal instances it is.
    """

    params: int
    counts: Counts | None
    kv: KvBytes | None = None
    where: str | None = None

    @property
    def matmul_flops(self) -> int | None:
        """With the full attention rectangle."""
        return None if self.counts is None else self.counts.matmul_flops

    @property
    def matmul_flops_exact(self) -> int | None:
        """With visible pairs only."""
        return None if self.counts is None else self.counts.matmul_flops_exact


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
    workload = Workload("prefill", 1, sizes.tokens, dtype=sizes.dtype)
    counted = count(plan, [workload], bench=Workbench(Observations(registry.cost_rules)))
    (cost,) = (cost for cost in counted.costs if cost.scope == "block")
    kv = cost.kv if kind == "attention" else None
    counts = None if cost.counts is None else cost.by_kind.get(kind, Counts())
    return InstanceCost(counted.params.blocks[0].params, counts, kv)


def _alone(kind: str, written: str, sizes: Sizes, registry: Registry) -> InstanceCost:
    plan = _plan(kind, written, sizes, registry)
    chosen = vars(plan.stack.base)[kind]
    base = plan.stack.base
    menu = {"dim": sizes.dim, "heads": base.heads, "head_dim": base.head_dim, "causal": base.causal}
    with construction(0, "meta", sizes.dtype):
        built = chosen.build(menu)
    trace = _trace(built, registry)
    with torch.no_grad(), trace:
        for call in _CALLS[kind](built, chosen, sizes, base.head_dim):
            with trace.part(kind):
                trace.leaves(call())
    return InstanceCost(numel(built), trace.counts())


def _trace(built: nn.Module, registry: Registry) -> Trace:
    return Trace(weights=[*built.parameters(), *built.buffers()], rules=registry.cost_rules)


def _call_norm(built: nn.Module, chosen: Chosen, sizes: Sizes, head_dim: int) -> list[Call]:
    return [partial(built, sizes.vectors())]


def _call_activation(built: nn.Module, chosen: Chosen, sizes: Sizes, head_dim: int) -> list[Call]:
    return [partial(built, *(sizes.vectors() for _ in range(chosen.maker().inputs)))]


def _call_position(built: Position, chosen: Chosen, sizes: Sizes, head_dim: int) -> list[Call]:
    tokens = min(sizes.tokens, built.max_tokens or sizes.tokens)
    x, positions = sizes.vectors()[:, :tokens], torch.arange(tokens, device="meta")
    heads = torch.empty((1, sizes.heads, tokens, head_dim), dtype=x.dtype, device="meta")
    return [
        partial(built.embed, x, positions),
        partial(built.rotate, heads, positions),
        partial(built.bias, tokens, tokens, 0),
    ]


_CALLS: Mapping[str, Callable[[Any, Chosen, Sizes, int], list[Call]]] = {
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
            trace = _trace(residual, registry)
            with trace:
                with trace.part("read"):
                    x, state = residual.read(state)
                    trace.leaves([x, state])
                y = torch.empty_like(x)
                with trace.part("write"):
                    state = residual.write(state, y)
                    trace.leaves(state)
    where = f"the last of {len(sites)} sites in {sizes.layers} layers"
    return InstanceCost(numel(sites[-1]), trace.counts(), where=where)


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
