import torch.nn.functional as F
from torch import Tensor, nn


class GeGLUTanh(nn.Module):
    """gelu_tanh(gate) * up: GeGLU with the tanh form of GELU (T5 v1.1, Gemma). Shazeer 2020, arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.gelu(gate, approximate="tanh") * up
