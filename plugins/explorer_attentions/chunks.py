"""A text cut into chunks, for attentions that carry a state of constant size from one chunk to the next."""

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer import wide_dtype

CHUNK = 64
"""Tokens of a chunk, as in the papers: longer ones do more products inside, shorter ones more steps one by one."""
_LENGTHS = (4, 16, CHUNK)


def halving_grid(T: int) -> tuple[int, int]:
    """(n, C): T tokens in n chunks of C = 64, up to 64 in one of 4, 16 or 64: chunks are halved down to tokens.

    The last chunk is not made shorter: what is left over would go through all the steps of a chunk once more, by
    itself. Few lengths, because a compiler makes a graph for each; n may be one that it does not know.
    """
    for length in _LENGTHS:
        if length >= T:
            return 1, length
    return (T + CHUNK - 1) // CHUNK, CHUNK


def even_grid(T: int) -> tuple[int, int]:
    """(n, C): T tokens in n = ceil(T / 64) chunks of C = ceil(T / n): fewer than n places stay empty.

    Under a compiler C = 64 in more than one chunk: lengths that divide by an open n are more than it can follow.
    """
    if T <= CHUNK:
        return 1, T
    chunks = (T + CHUNK - 1) // CHUNK
    return chunks, CHUNK if torch.compiler.is_compiling() else (T + chunks - 1) // chunks


def in_chunks(x: Tensor, chunks: int, length: int) -> Tensor:
    """(B, heads, T, width) as (B, heads, n, C, width), contiguous; the last chunk is filled up with zeros."""
    rest = chunks * length - x.shape[2]
    if torch.compiler.is_compiling():
        # Not asked whether anything is left over: it would make a graph for each answer.
        x = torch.slice_scatter(x.new_zeros(*x.shape[:2], chunks * length, x.shape[3]), x, dim=2, end=x.shape[2])
    else:
        # A single pass over the tensor either way: padding writes a contiguous copy too.
        x = F.pad(x, (0, 0, 0, rest)) if rest else x.contiguous()
    return x.unflatten(2, (chunks, length))


def wide(x: Tensor) -> Tensor:
    """x in float32, or wider where it is wider: what is summed over a whole text needs its mantissa."""
    return x.to(wide_dtype(x.dtype))
