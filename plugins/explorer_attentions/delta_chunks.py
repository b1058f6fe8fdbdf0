"""What a chunk of the gated delta rule does to any state, as a few matrices: all that needs no state, for all chunks.

In a chunk with decays a_t the state is S_i = d_i S_0 + sum_j d_ij k_j u_j^T, d_i and d_ij the decays from the start and
from j to i. Each u_i = beta_i (v_i - k_i^T a_i S_{i-1}) depends on those before it: (I + A) u = beta v - (beta d k) S_0
with A_ij = beta_i k_i^T d_ij k_j below the diagonal. Yang et al. 2024, arXiv:2406.06484; 2412.06464 with the decays.

Decays are only ever products of factors of at most 1, or exp of sums of logarithms that are at most 0: never a
difference of cumulative sums, in which large ones drown the small, nor a quotient, which overflows.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Chunks:
    """u = write - erase S, y = read S + scores u, S' = decay S + keep^T u, for each chunk of C tokens.

    S (K, V) stands before the chunk, S' after it. Leading axes (B, heads, n).
    """

    read: Tensor  # (..., C, K)
    erase: Tensor  # (..., C, K)
    write: Tensor  # (..., C, V)
    keep: Tensor  # (..., C, K)
    scores: Tensor  # (..., C, C)
    decay: Tensor  # (..., K or 1)


def by_head(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Chunks:
    """A decay for each head: log_decay, beta (..., C, 1) for the heads (axis 1) of v; q and k may have fewer."""
    heads, length = v.shape[1], v.shape[-2]
    # sums[j, i]: the log decays of j + 1 ... i. They are summed for each j: see above.
    sums = log_decay.transpose(-1, -2).expand(*log_decay.shape[:-2], length, length).triu(1).cumsum(-1)
    between = sums.exp().triu().transpose(-1, -2)  # (..., C, C), the decay from column j to row i
    start = log_decay.cumsum(-2).exp()  # (..., C, 1), from the start of the chunk
    scores = spread(q @ k.transpose(-1, -2), heads) * between
    alike = spread(k @ k.transpose(-1, -2), heads) * between
    inverse = unit_inverse(beta * alike.tril(-1))
    q, k = spread(q, heads), spread(k, heads)
    return Chunks(
        read=q * start,
        erase=inverse @ (k * (beta * start)),
        write=inverse @ (v * beta),
        keep=k * between[..., -1, :, None],
        scores=scores,
        decay=start[..., -1, :],
    )


def by_channel(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Chunks:
    """A decay for each key channel: log_decay (..., C, K), beta (..., C, 1); one head of q and k for each of v.

    Pairs of tokens cannot share a decay here, and a decay for every pair and channel would be C times the size of k. So
    spans of 1, 2, 4 ... tokens are joined two by two: all decays between the tokens of two neighbours pass the border,
    and one product of (decay from the border to i) q_i or k_i with (decay from j to the border) k_j has them all.
    """
    decay = log_decay.exp()  # (..., m, K), the decay of each of m spans
    # rows (..., C, 2, K) are decayed from the start of their span on, keep (..., C, K) to the end of its span.
    rows, keep = torch.stack([q, k * beta], dim=-2) * decay.unsqueeze(-2), k
    scores = (q * k).sum(-1)[..., None, None]  # (..., m, c, c)
    inverse = torch.ones_like(scores)
    for span in _spans(q.shape[-2]):
        first, second = decay.unflatten(-2, (-1, 2)).unbind(-2)
        rows, keep = rows.unflatten(-3, (-1, 2, span)), keep.unflatten(-2, (-1, 2, span))
        corner = rows.select(-4, 1).flatten(-3, -2) @ keep.select(-3, 0).transpose(-1, -2)  # (..., m / 2, 2 c, c)
        read, erased = corner.unflatten(-2, (span, 2)).unbind(-2)
        scores, inverse = _joined(scores, read), _joined_inverse(inverse, erased)
        one = torch.ones_like(first)
        rows = (rows * torch.stack([one, first], dim=-2)[..., None, None, :]).flatten(-5, -3)
        keep = (keep * torch.stack([second, one], dim=-2)[..., None, :]).flatten(-4, -2)
        decay = first * second
    inverse = inverse.squeeze(-3)
    return Chunks(
        read=rows[..., 0, :],
        erase=inverse @ rows[..., 1, :],
        write=inverse @ (v * beta),
        keep=keep,
        scores=scores.squeeze(-3),
        decay=decay.squeeze(-2),
    )


def spread(x: Tensor, heads: int) -> Tensor:
    """Each head (axis 1) for heads / x.shape[1] consecutive ones."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def unit_inverse(below: Tensor) -> Tensor:
    """(I + A)^-1 of A (..., C, C), strictly lower triangular, C a power of two.

    By spans, [[X, 0], [A, Y]]^-1 = [[X^-1, 0], [-Y^-1 A X^-1, Y^-1]]: products of inverses, whose entries stay of the
    size of the result. (I - A)(I + A^2)(I + A^4) ... is the same on paper, but for equal keys A^32 has entries of 1e18.
    A triangular solve is as accurate; it is no product that a cost rule could count, and is slow in small batches.
    """
    length = below.shape[-1]
    inverse = below.new_ones(*below.shape[:-1], 1, 1)  # (..., m, c, c)
    for span in _spans(length):
        pairs = below.unflatten(-1, (-1, 2, span)).unflatten(-4, (-1, 2, span))  # (..., m, 2, c, m, 2, c)
        corners = pairs[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        inverse = _joined_inverse(inverse, corners)
    return inverse.squeeze(-3)


def _spans(length: int) -> list[int]:
    return [1 << level for level in range(length.bit_length() - 1)]


def _joined(blocks: Tensor, corner: Tensor) -> Tensor:
    """[[first, 0], [corner, second]] of neighbouring blocks: (..., m, c, c) and (..., m / 2, c, c)."""
    first, second = blocks.unflatten(-3, (-1, 2)).unbind(-3)
    above = F.pad(first, (0, corner.shape[-1]))
    return torch.cat([above, torch.cat([corner, second], dim=-1)], dim=-2)


def _joined_inverse(blocks: Tensor, corner: Tensor) -> Tensor:
    """The inverses of [[first, 0], [corner, second]], given those of first and second."""
    first, second = blocks.unflatten(-3, (-1, 2)).unbind(-3)
    return _joined(blocks, -(second @ corner @ first))
