import torch
from torch import Tensor, nn

from explorer import Residual


class ReZero(Residual):
    """x + alpha F(x), one learned alpha for each sublayer, starting at 0. Bachlechner et al. 2020, arXiv:2003.04887.

    The paper's Transformer has no norms: `placement: none`. Others are allowed, to compare with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(()))

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(state, self.alpha, y)
