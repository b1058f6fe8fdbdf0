"""What the tests of attentions share: a block's menu at toy size, and the attention core said another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from explorer import Cache, Position, Site, attend
from explorer_positions.none import NoPosition

DIM, HEADS, HEAD_DIM, B, T, S = 16, 4, 8, 2, 5, 7  # heads * head_dim is not dim
SITE = Site(index=2, total=4, sublayer=0, sublayers=2, layer=1, layers=2)


def no_position(head_dim: int) -> Position:
    return NoPosition()


@dataclass(frozen=True)
class Block:
    """What a block gives to its attention."""

    dim: int = DIM
    heads: int = HEADS
    head_dim: int = HEAD_DIM
    causal: bool = True
    window: int | None = None
    bias: bool | str = True
    position: Callable[[int], Position] = no_position
    dropout: float = 0.0
    site: Site = SITE

    def build(self, constructor: Callable[..., nn.Module], **parameters: Any) -> Any:
        """In evaluation mode, from one seed."""
        torch.manual_seed(0)
        picks = [p.name for p in signature(constructor).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        return constructor(*(getattr(self, name) for name in picks), **parameters).eval()


class Turn(Position):
    """Channels i and i + half turn by p / 10^i at position p, in the dtype of x: what a rotation is, in float64 too."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angle = positions[:, None].to(x.dtype) / 10.0 ** torch.arange(half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def turn(head_dim: int) -> Position:
    return Turn()


@dataclass
class Recorder:
    """A cache that holds nothing and keeps what it was given."""

    offset: int = 0
    holds_source: bool = False
    given: dict[str, Any] = field(default_factory=dict)

    def extend(self, *, window: int | None = None, **tensors: Tensor) -> tuple[Tensor, ...]:
        self.given = {"window": window, **tensors}
        return tuple(tensors.values())


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def scattered(module: Any) -> Any:
    """The same module with every vector of parameters (gains, biases, sinks) away from where it starts."""
    for seed, parameter in enumerate(p for p in module.parameters() if p.ndim < 2):
        parameter.data = 0.5 + drawn(*parameter.shape, seed=seed).to(parameter.dtype)
    return module


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def in_pieces(attention: Callable[..., Tensor], x: Tensor, cuts: Sequence[int]) -> Tensor:
    """What it says of x (B, T, dim) when it reads the pieces between the cuts through a cache."""
    cache, outputs = Cache(1, batch=x.shape[0], capacity=x.shape[1]), []
    for piece in x.tensor_split(list(cuts), dim=1):
        outputs.append(attention(piece, cache=cache.views[0]))
        cache.advance(piece.shape[1])
    return torch.cat(outputs, dim=1)


class Dense(TorchFunctionMode):
    """`attend` computed head by head with a number for each pair, in the dtype of q."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (dense if func is attend else func)(*args, **(kwargs or {}))


def dense(q, k, v, visible, *, mask=None, bias=None, scale=None, softcap=None, sinks=None, dropout=0.0):  # type: ignore[no-untyped-def]
    B, heads, T, width = q.shape
    S, group = k.shape[2], heads // k.shape[1]
    keep = sees(visible.causal, visible.window, T, S)
    keep = (keep if mask is None else keep & mask[..., -S:]).expand(B, heads, T, S)
    outputs = []
    for head in range(heads):
        scores = q[:, head] @ k[:, head // group].mT * (1 / math.sqrt(width) if scale is None else scale)
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        scores = scores if bias is None else scores + bias.expand(B, heads, T, S)[:, head]
        weights = scores.exp() * keep[:, head]
        total = weights.sum(-1, keepdim=True) + (0.0 if sinks is None else sinks[head].exp())
        outputs.append(weights @ v[:, head // group] / total.clamp_min(1e-300))
    return torch.stack(outputs, dim=1)


def sees(causal: bool, window: int | None, T: int, S: int) -> Tensor:
    """Pair by pair, which of S keys the last T tokens see."""
    far = S if window is None else window

    def seen(query: int, key: int) -> bool:
        place = S - T + query
        if causal:
            return place - far < key <= place
        return window is None or place - (far - 1) // 2 <= key <= place + far // 2

    return torch.tensor([[seen(query, key) for key in range(S)] for query in range(T)])


def hidden(T: int, S: int) -> Tensor:
    """The causal mask as transformers adds it to the scores, (1, 1, T, S)."""
    return torch.zeros(T, S).masked_fill(~sees(True, None, T, S), torch.finfo(torch.float32).min)[None, None]
