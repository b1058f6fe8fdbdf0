import torch.nn.functional as F
from torch import Tensor, nn


class GELU(nn.Module):
    """x * Phi(x) = x / 2 * (1 + erf(x / sqrt(2))), the exact form. Hendrycks & Gimpel 2016, arXiv:1606.08415.

    BERT's. GPT-2 and Gemma use `gelu_tanh`; the two differ by up to 4.7e-4.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)
