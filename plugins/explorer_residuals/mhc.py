import math
import warnings
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from explorer import KeepsFloat32, Lengths, Residual, Site, wide_dtype, without_autocast
from explorer_residuals.hyper_head import HyperHead, project
from explorer_residuals.sinkhorn import sinkhorn
from explorer_residuals.streams import PLACEMENTS, copied, weighted_sum

Read = tuple[Tensor, Tensor, Tensor]
_LOST = 2.0**-48
_APART = 8.0  # what the identity start leaves between logits: e^-8 = 3.4e-4


class ManifoldHyperConnections(KeepsFloat32, Residual):
    """X' = H_res X + H_post^T F(H_pre X) over n streams X. Xie et al. 2025 (mHC), arXiv:2512.24880.

    X (n, dim) starts as n copies of the embedding and lives to the end of the stack. The coefficients read the token:
    with v = RMSNorm(vec X), one norm over all n * dim numbers, without gain,
    H_pre = sigmoid(a_pre (v phi_pre) + b_pre), H_post = 2 sigmoid(a_post (v phi_post) + b_post),
    H_res = Sinkhorn((a_res (v phi_res) + b_res) / temperature): exp, then columns and rows divided by their sums in
    turn. Rows sum to 1, columns nearly. Parameters and coefficients are float32, whatever the dtype of X.
    phi holds [pre | post | res] as DeepSeek-V4's `fn` does, with H_res[i, j] at 2 n + j n + i. V4 adds 1e-6 to H_pre
    and to the sums of Sinkhorn, the paper and this do not: outputs differ by some 1e-5.

    streams: n; one stream is the plain residual with gates. iterations: of Sinkhorn.
    temperature: low ones sharpen H_res; at the identity start its derivative by the logits falls as
    e^(-8 / temperature), which warns where it is 0 in float32.
    start: `uniform`, b = 0 (H_pre 1/2, H_post 1, H_res 1/n) and phi N(0, 0.02^2), without which the streams would stay
    equal; `identity`, phi = 0, H_pre one-hot at the site's index modulo n and H_res the identity, both but for e^-8:
    n equal streams then start as the plain residual, to rounding (bfloat16 rounds rows of H_res to 1.001). The paper
    gives a = 0.01, with which both start; its start of b and phi is not published.
    leave: `sum` of the streams (the paper's), `weighted` (DeepSeek-V4's HyperHead). eps: of the norms.

    Rows of H_res sum to 1, so it does nothing to equal streams, and its logits get no gradient while they are equal, at
    any temperature: at the first site always (n^2 rows of phi, n^2 of b and a_res stay idle there, which reads copies
    of the embedding; H_pre acts by its sum alone, which a norm in the sublayer takes out again); at the other sites of
    the identity start until H_post, whose gradients differ since sites read different streams, has been moved by the
    first step. At the uniform start phi makes H_post, and so the streams behind the first site, differ at once.
    Where the streams leave as a sum, the last H_res acts only as far as Sinkhorn leaves its columns from 1.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS
    wide: ClassVar[tuple[str, ...]] = ("phi", "alpha", "bias")

    def __init__(
        self,
        dim: int,
        site: Site,
        *,
        streams: Annotated[int, Ge(1), Le(256)] = 4,
        iterations: Annotated[int, Ge(1), Le(1000)] = 20,
        temperature: Annotated[float, Gt(0)] = 1.0,
        start: Literal["uniform", "identity"] = "uniform",
        leave: Literal["sum", "weighted"] = "sum",
        eps: Annotated[float, Gt(0)] = 1e-6,
    ):
        super().__init__()
        self.streams, self.iterations, self.temperature, self.eps = streams, iterations, temperature, eps
        self.dim = dim
        self.sizes = (streams, streams, streams * streams)  # pre, post, res
        self.head = HyperHead(dim, streams, eps=eps) if site.end and leave == "weighted" else None
        if site.end:
            return
        dtype = wide_dtype()
        self.phi = nn.Parameter(torch.zeros(sum(self.sizes), streams * dim, dtype=dtype))
        self.alpha = nn.Parameter(torch.full((3,), 0.01, dtype=dtype))
        if start == "identity":
            _warn_if_still(streams, temperature)
            self.bias = nn.Parameter(torch.tensor(_identity(streams, site.index % streams), dtype=dtype))
        else:
            self.bias = nn.Parameter(torch.zeros(sum(self.sizes), dtype=dtype))
            nn.init.normal_(self.phi, std=0.02)

    def enter(self, x: Tensor) -> Tensor:
        return copied(x, self.streams)

    def read(self, state: Tensor) -> tuple[Tensor, Read]:
        pre, post, mix = self.coefficients(state)
        return weighted_sum(pre, state), (state, post, mix)

    def write(self, state: Read, y: Tensor) -> Tensor:
        streams, post, mix = state
        with without_autocast(streams):
            mixed = mix.to(streams.dtype) @ streams
        return torch.addcmul(mixed, post.to(streams.dtype).unsqueeze(-1), y.to(streams.dtype).unsqueeze(-2))

    def leave(self, state: Tensor) -> Tensor:
        return state.sum(-2) if self.head is None else self.head(state)

    def closed_form(self, at: Lengths) -> int:
        """2 n d n (n + 2) FLOPs a token for phi, 2 n d for H_pre X, 2 n^2 d for H_res X: n = 4 has 232 d.

        H_post^T F(x) is an outer product, which is not a matrix product here.
        """
        n = self.streams
        return at.batch * at.tokens * 2 * n * self.dim * (n * (n + 2) + 1 + n)

    def coefficients(self, streams: Tensor) -> Read:
        """H_pre (B, T, n), H_post (B, T, n) and H_res (B, T, n, n) in float32 for streams (B, T, n, dim)."""
        projected = project(streams, self.phi, self.eps)  # (B, T, 2n + n^2)
        alphas, biases = self.alpha.to(projected.dtype).unbind(), self.bias.to(projected.dtype).split(self.sizes)
        parts = zip(biases, alphas, projected.split(self.sizes, dim=-1), strict=True)
        pre, post, mix = (torch.addcmul(bias, alpha, part) for bias, alpha, part in parts)
        logits = (mix / self.temperature).unflatten(-1, (self.streams, self.streams)).transpose(-1, -2)
        return pre.sigmoid(), 2 * post.sigmoid(), sinkhorn(logits, self.iterations)


def _identity(streams: int, place: int) -> Sequence[float]:
    """b of the identity start: [pre | post | res]."""
    # The other streams share what the one leaves: H_pre then sums to 1.
    others = math.log((streams - 1) * (1 + math.exp(_APART)) - 1) if streams > 1 else 0.0
    pre = [_APART if row == place else -others for row in range(streams)]
    mix = [0.0 if row == column else -_APART for row in range(streams) for column in range(streams)]
    return [*pre, *[0.0] * streams, *mix]


def _warn_if_still(streams: int, temperature: float) -> None:
    """Warn where e^(-8 / temperature), the derivative of H_res at the identity by its logits, is lost in float32.

    Times a gradient of the streams it rounds to 0 long before it does itself.
    """
    if streams > 1 and math.exp(-_APART / temperature) < _LOST:
        warnings.warn(
            f"mhc: at temperature {temperature:g} the identity start leaves the mixing logits {_APART / temperature:g} "
            "apart, where their gradient is lost in float32: the streams never learn to mix, however far training "
            "moves them: raise the temperature (at 1 the gradient is scaled by 3e-4, and comes as soon as the streams "
            "differ) or use start: uniform",
            UserWarning,
            stacklevel=3,
        )
