import torch
from torch import Tensor, nn

from explorer import Residual


class SkipInit(Residual):
    """x + alpha F(x), one learned alpha at the end of each branch. De & Smith 2020, arXiv:2002.10444.

    In the paper it replaces the batch norm of residual networks. The formula is ReZero's, found independently.

    init: the first value of alpha; 0 makes a fresh stack the identity.
    """

    def __init__(self, *, init: float = 0.0):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(init))

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(state, self.alpha, y)
