"""The closed form of a block: what the papers say it costs, from its sizes and the lengths of the pass alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.assembly.wiring import Wiring
from explorer.blueprint.plan import BlockPlan
from explorer.cost.crosscheck.calls import Calls
from explorer.cost.crosscheck.lengths import Lengths, across, itself
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.stage import Stage
from explorer.cost.crosscheck.tool import Tool
from explorer.cost.parts.failures import foreign
from explorer.registry.chosen import Chosen

NAME, VERSION = "closed form", ""


@runtime_checkable
class DeclaresClosedForm(Protocol):
    """A component that says what its matrix products cost by its paper. Optional, and read by the cross-check alone.

    It is one more witness, and never what is reported: that is counted. One without products needs none.
    """

    def closed_form(self, at: Lengths) -> int:
        """FLOPs of the matrix products of one forward, 1 multiply-add = 2: of a residual, of `read` and `write`."""
        ...


def tools(stage: Stage, calls: Calls, ours: Ours) -> list[Tool]:
    """With all pairs and with the visible ones. calls: of the forward of `stage.layer`, in inference mode.

    Raises: CannotRun, where a component's own form fails.
    """
    if missing := _undeclared(stage, calls):
        note = f"no closed form declared: {', '.join(missing)}"
        return [Tool(NAME, VERSION, "matmul_flops", "FLOP", 1, None, ours.matmul_flops, note=note)]
    with foreign():
        dense, exact = (_total(stage, exact=exact) for exact in (False, True))
    found = [Tool(NAME, VERSION, "matmul_flops", "FLOP", 1, dense, ours.matmul_flops)]
    if ours.matmul_flops_exact is not None:
        found.append(Tool(NAME, VERSION, "matmul_flops_exact", "FLOP", 1, exact, ours.matmul_flops_exact))
    return found


def _total(stage: Stage, *, exact: bool) -> int:
    total = 0
    for component, at in _declared(stage, exact=exact):
        total += component.closed_form(at)
        if stage.train:
            total += 2 * component.closed_form(at.of_backward())
    return total


@dataclass(frozen=True)
class _Sublayer:
    """A component of a block with its wiring, None for norms and residuals, and what the plan calls it."""

    module: nn.Module
    wiring: Wiring | None
    name: str


def _components(stage: Stage) -> Iterator[_Sublayer]:
    """All components of the layer."""
    block = stage.place.block
    sublayers = {
        "attention": block.attention,
        "cross_attention": block.cross_attention,
        "feedforward": block.feedforward,
    }
    for name, part in stage.layer.named_children():
        assert isinstance(part, Sublayer | ParallelSublayers), part
        yield _Sublayer(part.residual, None, _called(stage.place.stack.residual))
        norms = [part.norm, part.norm_out, part.norm_post]
        names = [name]
        if isinstance(part, ParallelSublayers):
            norms += part.norms.values()
            names = list(part.sublayers)
        yield from (_Sublayer(norm, None, _called(block.norm)) for norm in norms if norm is not None)
        for key, branch, wiring in zip(names, part.branches, part.wirings, strict=True):
            chosen = sublayers[key]
            yield _Sublayer(branch, wiring, key if chosen is None else _called(chosen))


def _called(chosen: Chosen) -> str:
    return f"{chosen.component.kind.name} '{chosen.short()}'"


def _declared(stage: Stage, *, exact: bool) -> Iterator[tuple[DeclaresClosedForm, Lengths]]:
    for component in _components(stage):
        if isinstance(component.module, DeclaresClosedForm):
            yield component.module, _lengths(stage, component.wiring, exact=exact)


def _lengths(stage: Stage, wiring: Wiring | None, *, exact: bool) -> Lengths:
    """A residual or a norm is asked as a feed-forward is: of the tokens alone."""
    batch, tokens = stage.workload.batch, stage.tokens
    if wiring is not None and wiring.cross and stage.source is not None:
        return across(batch, tokens, stage.source, cached=stage.source_cached, exact=exact)
    causal, window = _sight(stage.place.block)
    return itself(batch, tokens, tokens + stage.held, causal=causal, window=window, cached=stage.held > 0, exact=exact)


def _sight(block: BlockPlan) -> tuple[bool, int | None]:
    """Causal and window as the attention gets them: its own, else the block's."""
    params = block.attention.params
    return params.get("causal", block.causal), params.get("window", block.window)


def _undeclared(stage: Stage, calls: Calls) -> list[str]:
    """Components with products that declare no closed form, or in which products of another package run."""
    components = {id(component.module): component for component in _components(stage)}
    found: dict[str, None] = {}
    for called in _with_products(calls):
        around = [_as_component(module) for module in reversed(called)]
        place = next(place for place, module in enumerate(around) if id(module) in components)
        component = components[id(around[place])]
        inner = next((m for m in around[:place] if not type(m).__module__.startswith("torch.")), component.module)
        if not isinstance(component.module, DeclaresClosedForm):
            found[component.name] = None
        elif _package(inner) != _package(component.module):
            found[f"{type(inner).__name__} in {component.name}"] = None
    return list(found)


def _as_component(module: nn.Module) -> nn.Module:
    """Of a sublayer its residual: what reads and writes the stream is no forward of its own."""
    return module.residual if isinstance(module, Sublayer | ParallelSublayers) else module


def _with_products(calls: Calls) -> Iterator[tuple[nn.Module, ...]]:
    """The modules around each call that holds products, or may hold some."""
    yield from (core.called for core in calls.cores)
    yield from (call.called for call in calls.outside() if call.flops != 0)


def _package(module: object) -> str:
    return type(module).__module__.split(".")[0]
