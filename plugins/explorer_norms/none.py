from torch import Tensor, nn


class NoNorm(nn.Module):
    """x, unchanged: the block without this norm."""

    def forward(self, x: Tensor) -> Tensor:
        return x
