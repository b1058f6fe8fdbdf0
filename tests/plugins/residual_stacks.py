"""Small stacks whose residual is compared with a reference: the sublayers are ours, what joins them is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import explorer
from explorer import Residual, Site
from explorer.assembly.model import Model
from explorer.blueprint.workload import Workload
from explorer.cost.costs import Counted
from explorer.cost.counting import count

DIM, LAYERS = 16, 3
PRE: Mapping[str, Any] = {
    "dim": DIM,
    "heads": 4,
    "layers": LAYERS,
    "norm": {"rmsnorm": {"eps": 1e-12}},
    "position": "none",
    "feedforward": {"dense": {"hidden": 24}},
}
Branch = Callable[[Tensor], Tensor]


def site(index: int, total: int = 2 * LAYERS) -> Site:
    """A site in a decoder of two sublayers a layer."""
    layer, sublayer = divmod(index, 2)
    return Site(index, total, sublayer, 2, layer, total // 2, decoder_layers=total // 2)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def moved(module: nn.Module) -> nn.Module:
    """The module with its parameters away from where they start."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return module


def model_of(residual: Any, **fields: Any) -> Model:
    """Without vocabulary: vectors (B, T, dim) in and, after the final norm, out."""
    built = explorer.build({**PRE, "residual": residual, **fields}, device="cpu")
    assert isinstance(built, Model)
    return built.eval()


def random_model(residual: Any, **fields: Any) -> Model:
    """The same in float64, the parameters of its residuals away from where they start."""
    model = model_of(residual, **fields).double()
    for module in residuals(model):
        moved(module)
    return model


def residuals(model: Model) -> Iterator[Residual]:
    """One for each site, then the one that leaves."""
    for part in model.stack.parts():
        yield part.residual
    if model.stack.leave is not None:
        yield model.stack.leave


def branches(model: Model) -> list[Branch]:
    """F(N(x)) of each site."""

    def branch(part: Any) -> Branch:
        return lambda x: part.branch(part.norm(x))

    return [branch(part) for part in model.stack.parts()]


def added_cost(residual: Any, phase: str = "prefill", **fields: Any) -> tuple[Counted, Counted]:
    """Counts of one token of a model with and without the residual; see `per_dim`."""
    plans = ({**PRE, "dim": 4096, "heads": 32, **fields, "residual": name} for name in (residual, "add"))
    workload = [Workload(phase, 1, 1, dtype="bfloat16")]
    with_it, without = (count(explorer.load(plan).plan(), workload) for plan in plans)
    assert not any(cost.incomplete for cost in with_it.costs)
    return with_it, without


def flops_per_dim(residual: Any, phase: str = "prefill", **fields: Any) -> dict[str, float]:
    """FLOPs per token and channel that the residual adds to a block (its last layer) and to the model."""
    with_it, without = added_cost(residual, phase, **fields)
    pairs = zip(with_it.costs, without.costs, strict=True)
    return {ours.scope: (ours.matmul_flops - plain.matmul_flops) / 4096 for ours, plain in pairs}


def added_params(residual: Any, **fields: Any) -> tuple[int, int]:
    """Parameters that the residual adds to a block and to the model."""
    with_it, without = (counted.params for counted in added_cost(residual, **fields))
    assert with_it.model is not None
    assert without.model is not None
    return with_it.blocks[0].params - without.blocks[0].params, with_it.model - without.model
