from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

import torch
from annotated_types import Gt
from torch import Tensor

from explorer import Lengths, Residual, Site
from explorer_residuals.aggregate import Aggregate, joined, widened
from explorer_residuals.streams import PLACEMENTS

_TOGETHER = 4


class Sources(NamedTuple):
    """The embedding and the outputs of all sublayers so far, in order, in groups (B, T, n, dim); scales: (B, T, S).

    Both are in float32; dtype: that of the embedding, which a sublayer reads.
    """

    groups: tuple[Tensor, ...]
    scales: Tensor | None
    dtype: torch.dtype


class AttnRes(Residual):
    """h_l = sum_{i<l} a_i v_i, a = softmax_i(w_l . RMSNorm(v_i)), v_l = F_l(h_l). Kimi Team 2026 (Attention Residuals),
    arXiv:2603.15031.

    v_0 is the embedding, v_i the output of sublayer i and not the stream after it; nothing else is added. w_l, one
    vector for each site, reads no input and starts at 0: h_l starts as the mean of the sources. What leaves the stack
    is one more such sum. The sources of a pass grow with depth: 2 L + 1 for L layers. They are kept, scored and summed
    in float32 whatever the dtype of the model; what a sublayer reads has the dtype of the embedding.

    key_norm: false leaves out RMSNorm, and its gain, on the keys. eps: of that norm.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS

    def __init__(self, dim: int, site: Site, *, key_norm: bool = True, eps: Annotated[float, Gt(0)] = 1e-6):
        super().__init__()
        self.aggregate = Aggregate(dim, key_norm=key_norm, eps=eps)
        self.idle_parameters: Mapping[str, str] = idle(site)
        self.sources = site.index + 1

    def enter(self, x: Tensor) -> Sources:
        wide = widened(x)
        return Sources((wide.unsqueeze(-2),), self.aggregate.scale(wide), x.dtype)

    def read(self, state: Sources) -> tuple[Tensor, Sources]:
        return self.leave(state), state

    def write(self, state: Sources, y: Tensor) -> Sources:
        wide = widened(y)
        scales = joined(state.scales, self.aggregate.scale(wide))
        return state._replace(groups=_merged((*state.groups, wide.unsqueeze(-2))), scales=scales)

    def leave(self, state: Sources) -> Tensor:
        return self.aggregate(state.groups, state.scales).to(state.dtype)

    def closed_form(self, at: Lengths) -> int:
        """4 S d FLOPs a token at the site that reads S sources: the embedding and all outputs before."""
        return at.batch * at.tokens * 4 * self.sources * self.aggregate.dim


def idle(site: Site) -> Mapping[str, str]:
    """What gets no gradient at a site."""
    if site.index > 0:
        return {}
    return {"aggregate": "the first site has one source, the embedding, whose weight is 1 whatever the query"}


def _merged(groups: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The groups with the last four made one wherever they are of one size.

    A stack of all sources at every site would copy, and keep for backward, O(L^2) sources; one product for each
    source would call O(L^2) kernels. So a site reads O(log L) groups and a source is copied O(log L) times.
    """
    last = groups[-_TOGETHER:]
    if len(last) < _TOGETHER or len({group.shape[-2] for group in last}) > 1:
        return groups
    return _merged((*groups[:-_TOGETHER], torch.cat(last, dim=-2)))
