import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import ClassVar

from torch import Tensor, nn

from explorer import Residual, Site


class DeepNorm(Residual):
    """alpha * x + F(x), inside a post-norm: norm(alpha * x + F(x)). Wang et al. 2022, arXiv:2203.00555.

    alpha > 1 acts on the identity branch. beta < 1 is the gain of the Xavier initialisation of the value, output and
    feed-forward weights; queries and keys keep what `init` gives them (the paper: Xavier with gain 1).

    With N encoder and M decoder layers (not sublayers), one stack of N: alpha (2N)^(1/4), beta (8N)^(-1/4); an encoder
    beside a decoder: 0.81 (N^4 M)^(1/16) and 0.87 (N^4 M)^(-1/16), the decoder (3M)^(1/4) and (12M)^(-1/4).
    torchscale 0.3.0 uses 1.15 where the paper has 0.87.
    """

    placements: ClassVar[tuple[str, ...]] = ("post",)

    def __init__(self, site: Site):
        super().__init__()
        self.alpha, self.beta = _alpha_beta(site)

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return self.alpha * state + y

    def init_branch(self, weights: Mapping[str, Sequence[Tensor]]) -> None:
        # One matrix, in parts where an attention is written head by head: the fans of one head would start it larger
        # than the same attention with all heads in one matrix.
        rows = sum(weight.shape[0] for weight in weights["value"])
        for weight in weights["value"]:
            nn.init.normal_(weight, std=self.beta * math.sqrt(2 / (rows + weight.shape[1])))
        for weight in chain(weights["input"], weights["output"]):
            nn.init.xavier_normal_(weight, gain=self.beta)


def _alpha_beta(site: Site) -> tuple[float, float]:
    encoder, decoder = site.encoder_layers, site.decoder_layers
    if not encoder or not decoder:
        layers = encoder or decoder
        return (2 * layers) ** 0.25, (8 * layers) ** -0.25
    if site.stack == "encoder":
        both = (encoder**4 * decoder) ** (1 / 16)
        return 0.81 * both, 0.87 / both
    return (3 * decoder) ** 0.25, (12 * decoder) ** -0.25
