"""Weights for a model of transformers that make every part of it show."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor, nn


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Matrices of unit gain; norms, biases and the like away from the ones and zeros that would hide a swap."""
    seeds = count()
    for tensor in _tensors(model).values():
        generator = torch.Generator().manual_seed(next(seeds))
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(noise * tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else tensor + 0.3 * noise)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, tied ones once, and the buffers that are kept with them."""
    kept = model.state_dict().keys()
    return {**dict(model.named_parameters()), **{name: b for name, b in model.named_buffers() if name in kept}}
