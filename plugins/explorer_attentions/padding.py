"""Masks of padding, for attentions whose state is the same for every query: hidden tokens leave no trace in it."""

import torch
from torch import Tensor

from explorer import CacheView, UsageError

PADDING_ONLY = "all queries read one state: a token is hidden from all of them or from none"


def hidden(mask: Tensor | None, x: Tensor, cache: CacheView | None) -> Tensor | None:
    """Which of the tokens x (B, T, dim) are padding: bool (B or 1, 1, T or 1), None where none are.

    mask: bool, True = may be read, broadcastable to (B, 1, 1, S) for the S tokens so far, of which x are the last; of a
    longer one the last columns count. Raises: UsageError for any other.
    """
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise UsageError(f"a mask must be bool, True = may attend, not {mask.dtype}")
    B, T = x.shape[:2]
    S = T if cache is None else cache.offset + T
    shape = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    columns = shape[-1]
    if len(shape) != 4 or shape[1:3] != (1, 1) or shape[0] not in (1, B) or (columns != 1 and columns < S):
        raise UsageError(
            f"a mask here must be padding, broadcastable to (B, 1, 1, S) = {(B, 1, 1, S)}, not {tuple(mask.shape)}: "
            f"{PADDING_ONLY}"
        )
    return ~mask.reshape(shape[0], 1, columns)[..., -T:]


def without(x: Tensor, hidden: Tensor | None) -> Tensor:
    """x, 0 where it belongs to a hidden token: (B, channels, T), or (B, heads, T, width)."""
    if hidden is None:
        return x
    return x.masked_fill(hidden if x.ndim == 3 else hidden.unsqueeze(-1), 0.0)
