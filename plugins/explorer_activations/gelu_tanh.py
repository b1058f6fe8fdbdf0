import torch.nn.functional as F
from torch import Tensor, nn


class GELUTanh(nn.Module):
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). Hendrycks & Gimpel 2016, arXiv:1606.08415.

    The approximation of GPT-2, GPT-J and BLOOM. `gelu` is the exact form; the two differ by up to 4.7e-4.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
