from torch import Tensor, nn


class Bilinear(nn.Module):
    """gate * up: a gated unit whose gate is the identity. Shazeer 2020, arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return gate * up
