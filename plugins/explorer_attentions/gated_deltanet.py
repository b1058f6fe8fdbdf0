import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor, nn

from explorer import CacheView, Lengths
from explorer_attentions.chunks import wide
from explorer_attentions.delta_rule import closed_form, remember, unit
from explorer_attentions.gated_norm import GatedRMSNorm
from explorer_attentions.log_decay import LogDecay
from explorer_attentions.padding import PADDING_ONLY, hidden
from explorer_attentions.short_conv import ShortConvolution


class GatedDeltaNet(nn.Module):
    """W_o (rmsnorm(q_t^T S_t) silu(gate_t)), S_t = a_t S_{t-1} + k_t beta_t (v_t - k_t^T a_t S_{t-1}).

    Yang, Kautz & Hatamizadeh 2024, arXiv:2412.06464; as in Qwen3-Next. q, k and v pass a short causal convolution and
    SiLU; q and k are scaled to length 1, q then by 1 / sqrt(key_dim); beta = sigmoid(x W_b); a head's decay is
    a = exp(-exp(a_log) softplus(x W_a + dt)). The norm has one weight for all heads. Always causal, without positions.
    One fused projection with the rows [q | k | v | gate | beta | decay].

    conv: tokens that the convolution sees. key_heads, value_heads: null: heads; key head i serves the value heads from
    i value_heads / key_heads on. key_dim, value_dim: of a head, null: head_dim.
    """

    padding_only: ClassVar[str] = PADDING_ONLY

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        conv: Annotated[int, Ge(1)] = 4,
        key_heads: Annotated[int, Ge(1)] | None = None,
        value_heads: Annotated[int, Ge(1)] | None = None,
        key_dim: Annotated[int, Ge(1)] | None = None,
        value_dim: Annotated[int, Ge(1)] | None = None,
    ):
        super().__init__()
        key_heads, value_heads = key_heads or heads, value_heads or heads
        if value_heads % key_heads:
            raise ValueError(f"value_heads {value_heads} must divide by key_heads {key_heads}")
        self.key_heads, self.value_heads = (key_heads, key_dim or head_dim), (value_heads, value_dim or head_dim)
        keys, values = math.prod(self.key_heads), math.prod(self.value_heads)
        self.widths = (2 * keys + values, values, value_heads, value_heads)
        self.qkv_widths = (keys, keys, values)
        self.inputs = nn.Linear(dim, sum(self.widths), bias=False)
        self.conv = ShortConvolution(self.widths[0], conv)
        self.decay = LogDecay(value_heads, 1)
        self.norm = GatedRMSNorm(self.value_heads[1], 1e-6, "silu")
        self.out = nn.Linear(values, dim, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: CacheView | None = None) -> Tensor:
        if not x.shape[1]:
            return x
        padding = hidden(mask, x, cache)
        qkv, gate, beta, decay = self.inputs(x).split(self.widths, dim=-1)
        q, k, v = self.conv(qkv, cache, padding).split(self.qkv_widths, dim=-1)
        q, k = (t.unflatten(-1, self.key_heads) for t in (q, k))
        v, gate = (t.unflatten(-1, self.value_heads) for t in (v, gate))
        beta, decay = wide(beta).sigmoid().unsqueeze(-1), self.decay(decay.unsqueeze(-1))
        y = remember(unit(q, self.key_heads[1] ** -0.5), unit(k), v, beta, decay, cache, padding)
        return self.out(self.norm(y, gate).flatten(2))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        # No values: the norm behind the state takes any scale out of them.
        return {"value": [], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """2 d (2 K + 2 V + 2 h) + 2 V d FLOPs a token, 2 c (2 K + V) for the convolution, and the delta rule's.

        K, V: width of all key and value heads; h: value heads; c: tokens that the convolution sees.
        """
        dim, (heads, value_dim), (key_heads, key_dim) = self.out.out_features, self.value_heads, self.key_heads
        conv = 2 * (self.conv.before + 1) * sum(self.qkv_widths)
        token = 2 * dim * (sum(self.widths) + heads * value_dim) + conv

        def pairwise(length: int) -> int:
            return key_heads * 4 * length**2 * key_dim  # q k^T and k k^T of a key head serve all its value heads

        rule = closed_form(at, heads=heads, key_dim=key_dim, value_dim=value_dim, pairwise=pairwise)
        return at.batch * (at.tokens * token + rule)
