import torch
from torch import Tensor, nn


class GLU(nn.Module):
    """sigmoid(gate) * up. Dauphin, Fan, Auli & Grangier 2016, arXiv:1612.08083; as a feed-forward: arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.sigmoid(gate) * up
