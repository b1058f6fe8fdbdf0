from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from explorer import CacheView, Lengths, Norm, Position, Visible, attend
from explorer_attentions.steps import (
    ACROSS,
    gated,
    in_heads,
    is_cross,
    out_of_heads,
    parted,
    rotation,
    rows,
    scores_bias,
    source,
    unrotated,
)


class MultiheadLatentAttention(nn.Module):
    """W_o softmax(s (q_n k_n^T + R q_r (R k_r)^T)) v, where [k_n | v] = W_up norm(c), [c | k_r] = W_down x.

    DeepSeek-AI 2024, arXiv:2405.04434 (V2), arXiv:2412.19437 (V3). R rotates. One k_r serves all heads.
    A cache holds norm(c) and R k_r, which is not normed: kv_rank + rope_dim elements a token for any number of heads.

    Expanded, as above, W_up makes keys and values of c; absorbed, it acts on q_n and on the outputs, and c is the one
    key and value head. Both give the same. A call that sees more keys than it has queries (decode) takes the form with
    fewer products, any other one is expanded: so counts of prefill and training are those of the expanded form.
    bias: on the maps from x (the first ones of q and of kv, the gate's) and on W_o.

    q_rank: width of a normed latent of q, null: q comes straight from x. kv_rank: width of c.
    rope_dim: width of q_r and k_r a head. On them alone a position acts; with `none` they stay as they are (Kimi).
    nope_dim, value_dim: width of q_n and k_n, and of v, a head; null: head_dim.
    scale: s, null: 1 / sqrt(nope_dim + rope_dim). norm: of both latents.
    gate: sigmoid(W_g x) on each channel of the heads' outputs, before W_o (Kimi K3, arXiv:2607.24653).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        causal: bool,
        window: int | None,
        bias: bool | Literal["qkv", "out"],
        position: Callable[[int], Position],
        dropout: float,
        *,
        q_rank: Annotated[int, Ge(1)] | None = None,
        kv_rank: Annotated[int, Ge(1)] = 512,
        rope_dim: Annotated[int, Ge(1)] = 64,
        nope_dim: Annotated[int, Ge(1)] | None = None,
        value_dim: Annotated[int, Ge(1)] | None = None,
        scale: Annotated[float, Gt(0)] | None = None,
        gate: bool = False,
        norm: Norm = "rmsnorm",  # type: ignore[assignment]  # as a blueprint writes it
    ):
        super().__init__()
        self.heads, self.kv_rank, self.rope_dim = heads, kv_rank, rope_dim
        self.nope_dim, self.value_dim = nope_dim or head_dim, value_dim or head_dim
        self.value_width, q_width = heads * self.value_dim, heads * (self.nope_dim + rope_dim)
        self.latent_width = kv_rank + rope_dim
        self.gate_width, self.q_width = self.value_width if gate else 0, q_rank or q_width
        self.down = nn.Linear(dim, self.gate_width + self.q_width + self.latent_width, bias=bias in (True, "qkv"))
        self.q_norm = norm(q_rank) if q_rank else nn.Identity()
        self.q_up = nn.Linear(q_rank, q_width, bias=False) if q_rank else nn.Identity()
        self.kv_norm = norm(kv_rank)
        self.kv_up = nn.Linear(kv_rank, heads * self.nope_dim + self.value_width, bias=False)
        self.out = nn.Linear(self.value_width, dim, bias=bias in (True, "out"))
        self.visible, self.dropout = Visible(causal, window), dropout
        self.scale = (self.nope_dim + rope_dim) ** -0.5 if scale is None else scale
        self.position = (position(rope_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, cache: CacheView | None = None
    ) -> Tensor:
        if is_cross(context, cache):
            visible, bias = ACROSS, None
            gate, (q,) = parted(rows(self.down, x, 0, -self.latent_width), self.gate_width, self.q_width)
            q_nope, q_rope = self._queries(q)
            (latent,) = source(self._of_context, context, cache)
        else:
            visible = self.visible
            gate, q_nope, q_rope, latent = self._own(x, cache)
            bias = scores_bias(self.position[0], x.shape[1], latent.shape[-2], cache)
        absorbs = self._absorbs(x.shape[1], latent.shape[-2])
        q, k, v = (self._absorbed if absorbs else self._expanded)(q_nope, q_rope, latent)
        rate = self.dropout if self.training else 0.0
        y = attend(q, k, v, visible, mask=mask, bias=bias, scale=self.scale, dropout=rate)
        y = self._out_of_latents(y) if absorbs else out_of_heads(y)  # (B, T, heads * value_dim)
        return self.out(gated(y, gate))

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        return {"value": [self._up()[1]], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """Expanded: 2 r h (p + v) FLOPs a key, 2 h (p + R + v) a pair; absorbed: 2 r h (p + v) a token, 2 h (2 r + R) a
        pair; of a call with more keys than tokens the form with fewer. Besides 2 d (r + R) a token read, and a token
        2 d q, 2 d h v, with a latent of q 2 q h (p + R), with a gate 2 d h v.

        q: width of what x makes for queries, r: kv_rank, p, R, v: nope_dim, rope_dim, value_dim.
        """
        dim, wide = self.out.out_features, self.nope_dim + self.rope_dim
        token = 2 * dim * (self.q_width + self.value_width + self.gate_width)
        if isinstance(self.q_up, nn.Linear):
            token += 2 * self.q_width * self.heads * wide
        up = 2 * self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        expanded = (at.keys * up, 2 * self.heads * (wide + self.value_dim))
        absorbed = (at.tokens * up, 2 * self.heads * (2 * self.kv_rank + self.rope_dim))
        # Which form is taken depends on all pairs, whether they are visible or not.
        cheapest = min(expanded, absorbed, key=lambda form: form[0] + at.tokens * at.keys * form[1])
        made, pair = cheapest if at.keys > at.tokens else expanded
        return at.batch * (at.tokens * token + at.read * 2 * dim * self.latent_width + made + at.pairs * pair)

    def _own(self, x: Tensor, cache: CacheView | None) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Self-attention's gate, queries, and the latents of all tokens so far."""
        gate, (q, kv) = parted(self.down(x), self.gate_width, self.q_width, self.latent_width)
        rotate = rotation(self.position[0], x, cache)
        q_nope, q_rope = self._queries(q)
        latent = self._latent(kv, rotate)
        if cache is not None:
            (latent,) = cache.extend(latent=latent, window=self.visible.window)
        return gate, q_nope, rotate(q_rope), latent

    def _queries(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """(B, heads, T, nope_dim) and (B, heads, T, rope_dim)."""
        q = in_heads(self.q_up(self.q_norm(q)), self.nope_dim + self.rope_dim)
        q_nope, q_rope = q.split([self.nope_dim, self.rope_dim], dim=-1)
        return q_nope, q_rope

    def _latent(self, kv: Tensor, rotate: Callable[[Tensor], Tensor]) -> Tensor:
        """[norm(c) | R k_r], (B, 1, T, kv_rank + rope_dim): what a cache holds and absorbed queries read."""
        c, k_rope = kv.unsqueeze(1).split([self.kv_rank, self.rope_dim], dim=-1)
        return torch.cat([self.kv_norm(c), rotate(k_rope)], dim=-1)

    def _of_context(self, context: Tensor) -> tuple[Tensor]:
        return (self._latent(rows(self.down, context, -self.latent_width, None), unrotated),)

    def _up(self) -> tuple[Tensor, Tensor]:
        """The rows of the map from c to keys, and to values."""
        w_k, w_v = self.kv_up.weight.split([self.heads * self.nope_dim, self.value_width])
        return w_k, w_v

    def _absorbs(self, T: int, S: int) -> bool:
        """Whether T queries take fewer products in the latent space than with S keys and values made for them."""
        up, shared = self.kv_rank * (self.nope_dim + self.value_dim), self.rope_dim
        expanded = S * up + T * S * (self.nope_dim + self.value_dim + shared)
        absorbed = T * up + T * S * (2 * self.kv_rank + shared)
        return S > T and absorbed < expanded

    def _expanded(self, q_nope: Tensor, q_rope: Tensor, latent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c, k_rope = latent.split([self.kv_rank, self.rope_dim], dim=-1)
        k_nope, v = self.kv_up(c.squeeze(1)).split([self.heads * self.nope_dim, self.value_width], dim=-1)
        k_rope = k_rope.expand(-1, self.heads, -1, -1)
        k = torch.cat([in_heads(k_nope, self.nope_dim), k_rope], dim=-1)  # (B, heads, S, nope_dim + rope_dim)
        return torch.cat([q_nope, q_rope], dim=-1), k, in_heads(v, self.value_dim)

    def _absorbed(self, q_nope: Tensor, q_rope: Tensor, latent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w_k = self._up()[0].unflatten(0, (self.heads, self.nope_dim))
        q = torch.einsum("bhtn,hnr->bhtr", q_nope, w_k)  # q_n (W c)^T = (q_n W) c^T
        return torch.cat([q, q_rope], dim=-1), latent, latent[..., : self.kv_rank]

    def _out_of_latents(self, y: Tensor) -> Tensor:
        """Absorbed outputs (B, heads, T, kv_rank) as (B, T, heads * value_dim)."""
        w_v = self._up()[1].unflatten(0, (self.heads, self.value_dim))
        return torch.einsum("bhtr,hvr->bthv", y, w_v).flatten(2)
