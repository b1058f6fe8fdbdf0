from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import Activation, grouped


class Experts(nn.Module):
    """sum_e w_e W_down_e act(W_up_e x) over the experts e chosen for a token, (N, dim) -> (N, dim).

    Shazeer et al. 2017, arXiv:1701.06538. The rows of all tokens are sorted by expert, so that each expert sees its own
    rows as one matrix and no others. Gate and up projections are one matrix of rows [gate | up], as in `dense`; weights
    have the layout of nn.Linear, (experts, out, in), and start as those of nn.Linear do.
    """

    def __init__(self, dim: int, activation: Activation, bias: bool, dropout: float, *, experts: int, hidden: int):
        super().__init__()
        self.inputs, self.dropout, self.hidden, self.dim = activation.inputs, dropout, hidden, dim
        self.up, self.up_bias = _linears(experts, dim, self.inputs * hidden, bias)
        self.activation = activation()
        self.down, self.down_bias = _linears(experts, hidden, dim, bias)

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """weights (N, top_k) of the experts chosen (N, top_k)."""
        expert, order = chosen.flatten().sort(stable=True)  # (N top_k): a row for each token and expert, by expert
        every = torch.arange(self.up.shape[0], device=x.device)
        ends = torch.searchsorted(expert, every, right=True, out_int32=True)
        rows = x.index_select(0, order // chosen.shape[1])
        up = _apply(rows, self.up, self.up_bias, expert, ends)
        hidden = F.dropout(self.activation(*up.chunk(self.inputs, dim=-1)), self.dropout, self.training)
        y = _apply(hidden, self.down, self.down_bias, expert, ends)
        return _summed(y, weights, order)

    def flops_per_token(self, top_k: int) -> int:
        """4 d f for each of top_k experts, gated 6 d f."""
        return top_k * 2 * self.dim * self.hidden * (self.inputs + 1)

    def linear_maps(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """(out, in) weight and bias of every map of every expert, for an initialisation."""
        for weights, biases in ((self.up, self.up_bias), (self.down, self.down_bias)):
            yield from zip(weights, [None] * len(weights) if biases is None else biases, strict=True)

    def input_weights(self) -> list[Tensor]:
        """(hidden, dim) of every expert, its gate and its up projection apart."""
        return [weight for up in self.up for weight in up.chunk(self.inputs)]

    def output_weights(self) -> list[Tensor]:
        """(dim, hidden) of every expert."""
        return list(self.down)


def _linears(experts: int, inputs: int, outputs: int, bias: bool) -> tuple[nn.Parameter, nn.Parameter | None]:
    return _drawn(inputs, experts, outputs, inputs), _drawn(inputs, experts, outputs) if bias else None


def _drawn(inputs: int, *shape: int) -> nn.Parameter:
    bound = inputs**-0.5
    return nn.Parameter(nn.init.uniform_(torch.empty(shape), -bound, bound))


def _apply(x: Tensor, weight: Tensor, bias: Tensor | None, expert: Tensor, ends: Tensor) -> Tensor:
    y = grouped(x, weight.mT, ends)
    return y if bias is None else y + bias.index_select(0, expert).to(y.dtype)


def _summed(y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """The sum of each token's rows, weighted: row i of y is the one at place order[i] of (N, top_k)."""
    place = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))
    rows = y.index_select(0, place).view(*weights.shape, y.shape[1])  # (N, top_k, dim)
    # Not added in place by index: with several rows a token, CUDA would add them in an order that changes.
    return (rows * weights.to(y.dtype).unsqueeze(-1)).sum(1)
