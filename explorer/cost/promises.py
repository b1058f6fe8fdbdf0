"""What every norm and sublayer promises: an output of its input's shape and dtype.

A broken promise would not stop a pass on meta (shapes broadcast, dtypes are not compared): the count would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.blueprint.plan import BlockPlan
from explorer.errors import PluginError
from explorer.registry.chosen import Chosen


@contextmanager
def promises_kept(layer: Block | None, plan: BlockPlan | None) -> Iterator[None]:
    """Inside, a component of the layer that returns another shape or dtype than it was given raises PluginError."""
    pairs = [] if layer is None or plan is None else list(_components(layer, plan))
    hooks = [module.register_forward_hook(_Check(chosen)) for chosen, module in pairs]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Check:
    """A forward hook that compares what comes out of a component with what went in."""

    def __init__(self, chosen: Chosen):
        self.chosen = chosen

    def __call__(self, module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        if not given or not isinstance(given[0], Tensor):
            return
        wanted, came = _described(given[0]), _described(out)
        if wanted != came:
            component = self.chosen.component
            raise PluginError(
                f"{component.kind.name} '{self.chosen.short()}' of {component.origin} ({component.package}): "
                f"forward must return {wanted}, as its input is, not {came}"
            )


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def _components(layer: Block, plan: BlockPlan) -> Iterator[tuple[Chosen, nn.Module]]:
    sublayers = {
        "attention": plan.attention,
        "cross_attention": plan.cross_attention,
        "feedforward": plan.feedforward,
    }
    for name, part in layer.named_children():
        assert isinstance(part, Sublayer | ParallelSublayers), part
        norms = [part.norm, part.norm_out, part.norm_post]
        if isinstance(part, ParallelSublayers):
            norms += part.norms.values()
        branches = dict(part.sublayers.items()) if isinstance(part, ParallelSublayers) else {name: part.branches[0]}
        yield from ((plan.norm, norm) for norm in norms if norm is not None)
        yield from ((chosen, branches[key]) for key, chosen in sublayers.items() if chosen and key in branches)
