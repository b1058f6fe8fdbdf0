"""How the weights of a transformers model become those of ours: a table of names, checked to the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn

ENDINGS = ("", ".weight", ".bias")


@dataclass(frozen=True)
class From:
    """Ours is make(*theirs). A name is a tensor's, or a module's, whose weight and bias are then made alike."""

    sources: tuple[str, ...]
    make: Callable[..., Tensor]


Names = Mapping[str, str | From]


def rows(*sources: str) -> From:
    """Projections one below the other, as our fused ones are."""
    return From(sources, lambda *parts: torch.cat(parts))


def transposed(source: str) -> From:
    """A `Conv1D` of GPT-2, which keeps (in, out)."""
    return From((source,), lambda weight: weight.mT if weight.ndim == 2 else weight)


def regrouped(source: str, *shape: int, order: Sequence[int]) -> From:
    """A fused projection with rows laid out as (*shape, rest), its axes in another order."""
    return From((source,), lambda weight: _regrouped(weight, shape, order))


def layers(ours: str, theirs: str, tables: Sequence[Names]) -> Names:
    """One table a layer, with the names before it."""
    return {
        f"{ours}.{layer}.{name}": _below(f"{theirs}.{layer}", rule)
        for layer, table in enumerate(tables)
        for name, rule in table.items()
    }


def translated(names: Names, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors under our names. A rule without a tensor and a tensor without a rule are errors."""
    ours: dict[str, Tensor] = {}
    unused = set(theirs)
    for name, written in names.items():
        rule = _rule(written)
        found = [ending for ending in ENDINGS if rule.sources[0] + ending in theirs]
        if not found:
            raise LookupError(f"{name}: theirs has no {rule.sources[0]}")
        for ending in found:
            sources = [source + ending for source in rule.sources]
            ours[name + ending] = rule.make(*(theirs[source] for source in sources))
            unused -= set(sources)
    if unused:
        raise LookupError(f"no rule uses {', '.join(sorted(unused))}")
    return ours


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, tied ones once, and the buffers that are kept with them."""
    kept = model.state_dict().keys()
    return {**dict(model.named_parameters()), **{name: b for name, b in model.named_buffers() if name in kept}}


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Matrices of unit gain; norms, biases and the like away from the ones and zeros that would hide a swap."""
    seeds = count()
    for tensor in tensors(model).values():
        generator = torch.Generator().manual_seed(next(seeds))
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(noise * tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else tensor + 0.3 * noise)


def _rule(written: str | From) -> From:
    return From((written,), lambda weight: weight) if isinstance(written, str) else written


def _below(prefix: str, written: str | From) -> From:
    rule = _rule(written)
    return From(tuple(f"{prefix}.{source}" for source in rule.sources), rule.make)


def _regrouped(weight: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    inner = range(len(shape), len(shape) + weight.ndim)
    return weight.unflatten(0, (*shape, -1)).permute(*order, *inner).flatten(0, len(shape))
