import torch
from torch import Tensor, nn


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x). Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2; in use since CLIP.

    Not interchangeable with `gelu`: the two differ by up to 2.0e-2.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)
