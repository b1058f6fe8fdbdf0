from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import CacheView, Lengths, Position, without_autocast
from explorer_attentions.chunks import even_grid, in_chunks, wide
from explorer_attentions.padding import PADDING_ONLY, hidden, without

_LEAST = 1e-6


class LinearAttention(nn.Module):
    """W_o (phi(q_i)^T sum_j phi(k_j) v_j^T / phi(q_i)^T sum_j phi(k_j)), over j <= i where causal.

    Katharopoulos et al. 2020, arXiv:2006.16236. Both sums are a state of constant size, in float32. A denominator below
    1e-6 counts as 1e-6, so that a query whose features are all 0 (`relu`) reads zeros. One fused projection with the
    rows [q | k | v].

    A position that rotates turns q and k in front of phi, so that the weights stay positive and sum to 1. Rotating the
    features in the numerator alone (Su et al. 2021, arXiv:2104.09864, eq. 19) keeps scores a function of the distance,
    but divides by sums that may vanish where the numerator does not. A position that adds to the scores is refused.

    A hidden token (padding) has features of 0.

    feature_map: phi, elu(x) + 1 or relu(x).
    """

    padding_only: ClassVar[str] = PADDING_ONLY

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        causal: bool,
        bias: bool | Literal["qkv", "out"],
        position: Callable[[int], Position],
        *,
        feature_map: Literal["elu", "relu"] = "elu",
    ):
        super().__init__()
        self.position = (position(head_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions
        if type(self.position[0]).bias is not Position.bias:
            name = type(self.position[0]).__name__
            raise ValueError(f"linear attention has no scores to which the position {name} could add its bias")
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=bias in (True, "qkv"))
        self.out = nn.Linear(heads * head_dim, dim, bias=bias in (True, "out"))
        self.heads, self.causal, self.features = (heads, head_dim), causal, _FEATURES[feature_map]

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: CacheView | None = None) -> Tensor:
        if not x.shape[1]:
            return x
        padding = hidden(mask, x, cache)
        q, k, v = (wide(t).unflatten(-1, self.heads).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        offset = 0 if cache is None else cache.offset
        positions = torch.arange(offset, offset + x.shape[1], device=x.device)
        q, k = (self.features(self.position[0].rotate(t, positions)) for t in (q, k))
        k = without(k, padding)
        with without_autocast(x):
            y = self._values(q, k, v, cache)  # (B, T, heads, V)
            # The denominator normalises as a softmax's does: element by element, no matrix product of the cost's kind.
            y = y / (q * self._keys(k, cache)).sum(-1, keepdim=True).clamp_min(_LEAST).transpose(1, 2)
        return self.out(y.flatten(2).to(x.dtype))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        value = self.qkv.weight[-self.out.in_features :]
        return {"value": [value], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """8 d h k FLOPs a token. Not causal: 4 h k^2 a token; causal: 2 h k^2 for one token, which reads the state, and
        h (4 C^2 k + 4 C k^2) for each of n chunks of C tokens (Yang et al. 2023, arXiv:2312.06635).
        """
        heads, k = self.heads
        linear = at.tokens * 8 * self.out.out_features * heads * k
        return at.batch * (linear + heads * (self._causal_form(at, k) if self.causal else at.tokens * 4 * k * k))

    def _causal_form(self, at: Lengths, k: int) -> int:
        """The products of one head with its state."""
        if at.tokens == 1:
            return 2 * k * k
        chunks, length = even_grid(at.tokens)
        return chunks * (4 * length**2 * k + 4 * length * k * k)

    def _keys(self, k: Tensor, cache: CacheView | None) -> Tensor:
        """The sum of the keys that a query sees, (B, heads, T or 1, K)."""
        if not self.causal:
            return k.sum(2, keepdim=True)
        total = k.cumsum(2)
        if cache is not None:
            total = total + cache.state("keys", lambda: torch.zeros_like(k[:, :, :1]))
            cache.replace(keys=total[:, :, -1:].clone())  # a copy: a view would keep the sums at all tokens alive
        return total

    def _values(self, q: Tensor, k: Tensor, v: Tensor, cache: CacheView | None) -> Tensor:
        """q^T times the sum of k v^T that it sees, (B, T, heads, V)."""
        if not self.causal:
            return (q @ (k.transpose(-1, -2) @ v)).transpose(1, 2)

        def empty() -> Tensor:
            return v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])

        y, state = accumulated(q, k, v, empty() if cache is None else cache.state("state", empty))
        if cache is not None:
            cache.replace(state=state)
        return y


def accumulated(q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """y_t = q_t^T S_t, S_t = S_{t-1} + k_t v_t^T: q, k (B, heads, T, K), v (B, heads, T, V), state (B, heads, K, V).

    Returns y (B, T, heads, V) and the last state. A single token takes the recurrence; longer texts are read in chunks,
    whose states are one cumulative sum. Products count as they are done: all C^2 pairs of tokens of a chunk, those that
    look ahead included, and the few places that stay empty.
    """
    T = q.shape[2]
    if T == 1:
        state = torch.addcmul(state, k.transpose(-1, -2), v)
        return (q @ state).transpose(1, 2), state
    q, k, v = (in_chunks(t, *even_grid(T)) for t in (q, k, v))
    state = state.unsqueeze(2)  # (B, heads, n, K, V)
    after = state + (k.transpose(-1, -2) @ v).cumsum(2)
    before = torch.cat([state, after[:, :, :-1]], dim=2)
    y = (q @ k.transpose(-1, -2)).tril() @ v + q @ before
    last = after[:, :, -1].clone()  # a copy: a view would keep the states of all chunks alive
    return y.flatten(2, 3).transpose(1, 2)[:, :T], last


def _elu(x: Tensor) -> Tensor:
    return F.elu(x) + 1


_FEATURES: Mapping[str, Callable[[Tensor], Tensor]] = {"elu": _elu, "relu": F.relu}
