"""A text cut into chunks, for attentions that carry a state of constant size from one chunk to the next."""

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64
"""Tokens of a chunk, as in the papers: longer ones do more products inside, shorter ones more steps one by one."""


def grid(T: int) -> tuple[int, int]:
    """(n, C): T tokens in n chunks of C = 64, or one of the power of two from T on: chunks are halved down to tokens.

    Counted by comparisons alone: a compiler that leaves T open then knows n and C, and with them every shape inside.
    """
    length = 1
    while length < T and length < CHUNK:
        length *= 2
    chunks = 1
    while chunks * length < T:
        chunks += 1
    return chunks, length


def in_chunks(x: Tensor, chunks: int, length: int) -> Tensor:
    """(B, heads, T, width) as (B, heads, n, C, width), contiguous; the last chunk is filled up with zeros."""
    rest = chunks * length - x.shape[2]
    # A single pass over the tensor either way: padding writes a contiguous copy too.
    x = F.pad(x, (0, 0, 0, rest)) if rest else x.contiguous()
    return x.unflatten(2, (chunks, length))


def wide(x: Tensor) -> Tensor:
    """x in float32, or wider where it is wider: what is summed over a whole text needs its mantissa."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
