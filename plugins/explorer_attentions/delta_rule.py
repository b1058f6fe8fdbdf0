"""The gated delta rule: a state that forgets, and that corrects what it holds for a key."""

from collections.abc import Callable

import torch
from torch import Tensor

from explorer import CacheView, Lengths, without_autocast
from explorer_attentions.carry import carry
from explorer_attentions.chunks import halving_grid, in_chunks, wide
from explorer_attentions.delta_chunks import Chunks, by_channel, by_head, spread
from explorer_attentions.padding import without


def unit(x: Tensor, length: float = 1.0) -> Tensor:
    """length x / sqrt(sum(x^2) + 1e-6) over the last axis, in float32."""
    x = wide(x)
    return x * (torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) * length)


def remember(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    cache: CacheView | None,
    hidden: Tensor | None = None,
) -> Tensor:
    """`delta_rule` from the state that the cache holds, zero at first, and back into it; tensors (B, T, heads, width).

    The state (B, heads, K, V) is float32 whatever the dtype of the model, of the cache and of autocast: it sums up the
    whole text. hidden: of `padding`; such a token neither writes nor lets anything decay.
    """
    q, k, v, beta, log_decay = (wide(t).transpose(1, 2) for t in (q, k, v, beta, log_decay))
    beta, log_decay = without(beta, hidden), without(log_decay, hidden)

    def empty() -> Tensor:
        return v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])

    state = empty() if cache is None else cache.state("state", empty)
    with without_autocast(v):
        y, state = delta_rule(q, k, v, beta, log_decay, state)
    if cache is not None:
        cache.replace(state=state)
    return y  # (B, T, heads, V)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """S_t = a_t S_{t-1} + k_t beta_t (v_t - k_t^T a_t S_{t-1}), y_t = q_t^T S_t, a_t = exp(log_decay_t).

    Yang, Kautz & Hatamizadeh 2024, arXiv:2412.06464. q, k (B, key_heads, T, K), v (B, heads, T, V), each of q and k for
    heads / key_heads consecutive ones; beta (B, heads, T, 1); log_decay <= 0, (B, heads, T, 1), or (B, heads, T, K) for
    decays by channel (Kimi Linear, arXiv:2510.26692); state (B, heads, K, V). Returns y (B, T, heads, V) and the state.

    A single token takes the recurrence; longer texts go chunk by chunk, equal to it. Products count as they are done:
    of a chunk all C^2 pairs of tokens, those that look ahead included; of the last one also the zeros that fill it.
    """
    T = v.shape[2]
    if T == 1:
        y, state = _step(q, k, v, beta, log_decay, state)
        return y.transpose(1, 2), state
    parts = (in_chunks(t, *halving_grid(T)) for t in (q, k, v, beta, log_decay))
    y, state = _carried((by_head if log_decay.shape[-1] == 1 else by_channel)(*parts), state)
    return y.flatten(2, 3).transpose(1, 2)[:, :T], state


def closed_form(at: Lengths, *, heads: int, key_dim: int, value_dim: int, pairwise: Callable[[int], int]) -> int:
    """FLOPs of one sequence: 4 h K V for one token, which takes the recurrence; else for each of n chunks of C tokens
    `pairwise(C)` for the products of its keys, and h (2 C (C^2 - 1) / 3 + 2 C^2 (K + 2 V) + 6 C K V).

    h: heads of values; K, V: key_dim, value_dim. The first of these is the inverse, span by span, then come what it
    makes of keys and values and what the scores make of new values, then what is read and written of the state (Yang
    et al. 2024, arXiv:2406.06484). Backward: the first state and the inverses of single tokens are constants, and the
    last state is read by nothing.
    """
    if at.tokens == 1:
        return 4 * heads * key_dim * value_dim
    chunks, length = halving_grid(at.tokens)
    state = 2 * length * key_dim * value_dim
    own = 2 * length * (length**2 - 1) // 3 + 2 * length**2 * (key_dim + 2 * value_dim) + 3 * state
    total = chunks * (pairwise(length) + heads * own)
    if at.backward:
        total -= heads * (chunks * length + state + state // 2 + (state // 2 if chunks == 1 else 0))
    return total


def _step(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    heads = v.shape[1]
    q, k = spread(q, heads), spread(k, heads)
    state = state * log_decay.exp().transpose(-1, -2)
    new = beta * (v - k @ state)  # (B, heads, 1, V)
    state = torch.addcmul(state, k.transpose(-1, -2), new)
    return q @ state, state


def _carried(chunks: Chunks, state: Tensor) -> tuple[Tensor, Tensor]:
    """y (B, heads, n, C, V) and the last state. Only what needs the state before is done chunk by chunk."""
    heads = state.shape[:2]
    turns = (chunks.erase, chunks.write, chunks.keep.transpose(-1, -2), chunks.decay.unsqueeze(-1), state)
    erase, write, keep, decay, state = (t.flatten(0, 1) for t in turns)
    states, new, last = carry(erase, write, keep, decay, state)
    states, new = states.unflatten(0, heads), new.unflatten(0, heads)
    return chunks.read @ states + chunks.scores @ new, last.unflatten(0, heads)
