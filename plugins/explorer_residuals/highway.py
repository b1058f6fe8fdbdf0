import torch
from torch import Tensor, nn

from explorer import Lengths, Residual


class Highway(Residual):
    """T F(x) + (1 - T) x, T = sigmoid(W x + b). Srivastava, Greff & Schmidhuber 2015, arXiv:1505.00387.

    The gate reads the stream x itself, also where the sublayer reads a norm of it.

    gate_bias: the first value of all of b; a negative one lets a fresh stack mostly pass x on.
    """

    def __init__(self, dim: int, *, gate_bias: float = -2.0):
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        nn.init.constant_(self.gate.bias, gate_bias)

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        # lerp takes one dtype; under autocast F(x) and the gate may be of a lower precision than the stream.
        return torch.lerp(state, y.to(state.dtype), self.gate(state).sigmoid().to(state.dtype))

    def closed_form(self, at: Lengths) -> int:
        """2 d^2 FLOPs a token for the gate."""
        return at.batch * at.tokens * 2 * self.gate.in_features * self.gate.out_features
