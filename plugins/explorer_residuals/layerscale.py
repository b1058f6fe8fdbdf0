import torch
from torch import Tensor, nn

from explorer import Residual


class LayerScale(Residual):
    """x + l * F(x), a learned vector l with one number for each channel. Touvron et al. 2021 (CaiT), arXiv:2103.17239.

    init: the first value of all of l. The paper takes 0.1 up to 18 layers, 1e-5 up to 24, 1e-6 beyond.
    """

    def __init__(self, dim: int, *, init: float = 1e-4):
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), init))

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(state, self.scale, y)
