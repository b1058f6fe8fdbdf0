from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Lt
from torch import Tensor, nn

from explorer import CacheView, Lengths
from explorer_attentions.chunks import wide
from explorer_attentions.delta_rule import closed_form, remember, unit
from explorer_attentions.gated_norm import GatedRMSNorm
from explorer_attentions.log_decay import LogDecay
from explorer_attentions.padding import PADDING_ONLY, hidden
from explorer_attentions.short_conv import ShortConvolution


class KimiDeltaAttention(nn.Module):
    """W_o (rmsnorm(q_t^T S_t) sigmoid(gate_t)), S_t = a_t S_{t-1} + k_t beta_t (v_t - k_t^T a_t S_{t-1}), a by channel.

    Kimi Linear, Kimi Team 2025, arXiv:2510.26692; with decay_floor -5 and out_gate full as in Kimi K3,
    arXiv:2607.24653. The gated delta rule with a decay for each key channel: a = exp(-exp(a_log) softplus(f + dt)),
    f = x W_down W_up. q, k and v pass a short causal convolution and SiLU; q and k are scaled to length 1, q then by
    1 / sqrt(head_dim); beta = sigmoid(x W_b). The norm has one weight for all heads. Always causal, without positions.
    One fused projection with the rows [q | k | v | gate | beta | decay].

    conv: tokens that the convolution sees. decay_rank: between W_down and W_up, null: head_dim. decay_floor: of log a,
    which is then decay_floor sigmoid(exp(a_log) (f + dt)). out_gate: one map of x, or two over head_dim channels.
    """

    padding_only: ClassVar[str] = PADDING_ONLY

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        conv: Annotated[int, Ge(1)] = 4,
        decay_rank: Annotated[int, Ge(1)] | None = None,
        decay_floor: Annotated[float, Lt(0)] | None = None,
        out_gate: Literal["low_rank", "full"] = "low_rank",
    ):
        super().__init__()
        width, rank = heads * head_dim, decay_rank or head_dim
        self.heads = (heads, head_dim)
        self.widths = (3 * width, head_dim if out_gate == "low_rank" else width, heads, rank)
        self.inputs = nn.Linear(dim, sum(self.widths), bias=False)
        self.gate = nn.Linear(head_dim, width, bias=False) if out_gate == "low_rank" else nn.Identity()
        self.conv = ShortConvolution(3 * width, conv)
        self.decay_up = nn.Linear(rank, width, bias=False)
        self.decay = LogDecay(heads, head_dim, decay_floor)
        self.norm = GatedRMSNorm(head_dim, 1e-5, "sigmoid")
        self.out = nn.Linear(width, dim, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: CacheView | None = None) -> Tensor:
        if not x.shape[1]:
            return x
        padding = hidden(mask, x, cache)
        qkv, gate, beta, decay = self.inputs(x).split(self.widths, dim=-1)
        q, k, v = (t.unflatten(-1, self.heads) for t in self.conv(qkv, cache, padding).chunk(3, dim=-1))
        log_decay = self.decay(self.decay_up(decay).unflatten(-1, self.heads))
        beta = wide(beta).sigmoid().unsqueeze(-1)
        y = remember(unit(q, self.heads[1] ** -0.5), unit(k), v, beta, log_decay, cache, padding)
        return self.out(self.norm(y, self.gate(gate).unflatten(-1, self.heads)).flatten(2))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        # No values: the norm behind the state takes any scale out of them.
        return {"value": [], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """2 d (3 P + g + h + r) + 2 r P + 2 P d FLOPs a token, with two maps of the gate 2 k P, 6 c P for the
        convolution, and the delta rule's.

        P = h k: width of all heads; g: width after the gate's first map; r: decay_rank; c: tokens that the convolution
        sees.
        """
        dim, (heads, k) = self.out.out_features, self.heads
        width, rank = heads * k, self.widths[-1]
        token = 2 * dim * (sum(self.widths) + width) + 2 * rank * width + 6 * (self.conv.before + 1) * width
        if isinstance(self.gate, nn.Linear):
            token += 2 * k * width

        def pairwise(length: int) -> int:
            return heads * 2 * length * (length - 1) * k  # spans of 1, 2, 4 ... tokens, joined two by two

        rule = closed_form(at, heads=heads, key_dim=k, value_dim=k, pairwise=pairwise)
        return at.batch * (at.tokens * token + rule)
