"""What the tests of `csa` and `hca` share: their layers at toy size, and a text read in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import explorer
from explorer import Cache, Position
from explorer_attentions.csa import csa
from explorer_attentions.hca import hca
from explorer_positions.rope import RoPE

DIM, HEADS, HEAD_DIM, WINDOW, B = 16, 4, 8, 5, 2
CUTS = [(1,) * 23, (22, 1), (1, 22), (7, 1, 1, 5, 2, 1, 6), (2, 2, 3, 16), (20, 1, 1, 1)]
each_cut = pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "+".join(map(str, cut)))
LAYERS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any]]] = {
    "sliding": (csa, {"ratio": None}),
    "csa": (csa, {"ratio": 2, "index_heads": 16, "index_dim": 8, "index_top_k": 3}),
    "hca": (hca, {"ratio": 3}),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def rope(base: float = 160000.0) -> Callable[[int], Position]:
    return lambda width: RoPE(width, base=base, dims=4, at="end", pairing="interleaved")


def built(name: str, window: int | None = WINDOW, position: Callable[[int], Position] | None = None, **own: Any) -> Any:
    constructor, parameters = LAYERS[name]
    torch.manual_seed(0)
    position = position or rope(10000.0 if name == "sliding" else 160000.0)
    module = constructor(DIM, HEADS, HEAD_DIM, window, position, 0.0, **{**parameters, **own}).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # biases and sinks start at zero
    return module


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def in_pieces(module: nn.Module, x: Tensor, cut: Sequence[int], mask: Tensor | None = None) -> Tensor:
    cache, outputs, start = Cache(1, batch=x.shape[0], capacity=x.shape[1]), [], 0
    for size in cut:
        end = start + size
        rows = None if mask is None else mask[..., start:end, :end]
        outputs.append(module(x[:, start:end], mask=rows, cache=cache.views[0]))
        cache.advance(size)
        start = end
    return torch.cat(outputs, dim=1)


def plan(attention: Any, **fields: Any) -> Any:
    sizes = {"dim": DIM, "heads": HEADS, "head_dim": HEAD_DIM, "feedforward": "none", "window": WINDOW}
    return explorer.load({**sizes, "attention": attention, **fields}).plan()
