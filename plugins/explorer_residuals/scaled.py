import math
from typing import Literal

import torch
from torch import Tensor

from explorer import Residual, Site


class Scaled(Residual):
    """x + s F(x), s fixed. By depth: Hayou et al. 2021 (Stable ResNet), arXiv:2010.12859.

    by: `constant`, s = value; `depth`, s = value / sqrt(N) with the N residual sites of the stack, so that the sum of N
    branches of unit variance has variance value^2 whatever the depth. N counts sites, as GPT-2 counts its residual
    layers (Radford et al. 2019): twice the layers of a sequential decoder, the layers of a parallel one.
    """

    def __init__(self, site: Site, *, by: Literal["constant", "depth"] = "constant", value: float = 1.0):
        super().__init__()
        self.scale = value / math.sqrt(_branches(site)) if by == "depth" else value

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return torch.add(state, y, alpha=self.scale)


def _branches(site: Site) -> int:
    """Residual sites of the stack. Raises: RefusedError in a blueprint without `layers`, where it stands for one."""
    return site.total if site.layers else 1
