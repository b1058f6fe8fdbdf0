"""Where the residual sites of a stack lie: counted from the plan, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan
from explorer.registry.chosen import Chosen
from explorer.registry.sites import Site

CROSS = "cross_attention"


def sublayers(block: BlockPlan) -> dict[str, Chosen]:
    """What a layer computes, in order; a component that builds nothing is left out with its norm and residual."""
    chosen = {
        "attention": block.attention,
        CROSS: block.cross_attention,
        "feedforward": block.feedforward,
    }
    return {name: value for name, value in chosen.items() if value is not None and not value.is_none}


def site_count(block: BlockPlan) -> int:
    """Residual sites in one layer: one per sublayer, or one around all of them in the parallel layout."""
    built = len(sublayers(block))
    return built if block.shared_norm is None else min(built, 1)


@dataclass(frozen=True)
class Sites:
    """The sites of one stack of a model."""

    plan: ModelPlan
    stack: StackPlan
    encoder: bool = False

    def of(self, layer: int) -> Iterator[Site]:
        """The sites of one layer, in order."""
        here = self._starts[layer + 1] - self._starts[layer]
        for sublayer in range(here):
            yield self._site(self._starts[layer] + sublayer, sublayer, here, layer)

    def end(self) -> Site:
        """The site after the last one, where the state is left."""
        here = self._starts[-1] - self._starts[-2]
        return self._site(self._starts[-1], here, here, len(self.stack.layers) - 1)

    @cached_property
    def _starts(self) -> list[int]:
        """Sites before each layer, then their total."""
        counts = {name: site_count(block) for name, block in self.stack.blocks.items()}
        return list(accumulate((counts[name] for name in self.stack.layers), initial=0))

    def _site(self, index: int, sublayer: int, here: int, layer: int) -> Site:
        encoder = self.plan.encoder
        return Site(
            index=index,
            total=self._starts[-1],
            sublayer=sublayer,
            sublayers=here,
            layer=layer,
            layers=_depth(self.stack),
            stack="encoder" if self.encoder else "decoder",
            encoder_layers=0 if encoder is None else _depth(encoder),
            decoder_layers=_depth(self.plan.stack),
        )


def _depth(stack: StackPlan) -> Any:
    """None where the blueprint does not write `layers`: reading it is then an error."""
    return len(stack.layers) if stack.layers_written else None
