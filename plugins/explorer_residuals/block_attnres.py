from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from explorer import Lengths, Residual, Site
from explorer_residuals.aggregate import Aggregate, joined, widened
from explorer_residuals.attnres import idle
from explorer_residuals.streams import PLACEMENTS


class Blocks(NamedTuple):
    """The finished blocks' sums (B, T, n, dim) with their scales (B, T, n), and the sum of the block that is open.

    All are in float32; dtype: that of the embedding, which a sublayer reads. partial is None between the read that
    opens a block and its write. block: the number of the open one.
    """

    done: Tensor | None
    scales: Tensor | None
    partial: Tensor | None
    block: int
    dtype: torch.dtype


class BlockAttnRes(Residual):
    """h = sum_i a_i v_i, a = softmax_i(w . RMSNorm(v_i)) over the sums v_i of finished blocks and of the open one. Kimi
    Team 2026 (Attention Residuals), arXiv:2603.15031; with `block_size: 12` in Kimi K3, arXiv:2607.24653.

    Inside a block outputs are added up as by a plain residual. The embedding is a block of its own. The first site of
    a block reads the finished sum, and its output opens the next one. w starts at 0: h starts as the mean. What leaves
    the stack is one more such sum. All sums are kept in float32 whatever the dtype of the model.

    block_size: in layers. key_norm: false leaves out RMSNorm, and its gain, on the keys. eps: of that norm.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS

    def __init__(
        self,
        dim: int,
        site: Site,
        *,
        block_size: Annotated[int, Ge(1)],
        key_norm: bool = True,
        eps: Annotated[float, Gt(0)] = 1e-6,
    ):
        super().__init__()
        # By number, not by "first site of a layer": a layer at a boundary may have no sublayers.
        self.block = site.layer // block_size
        self.aggregate = Aggregate(dim, key_norm=key_norm, eps=eps)
        self.idle_parameters: Mapping[str, str] = idle(site)
        opens = site.sublayer == 0 and site.layer % block_size == 0
        self.sources = self.block + (1 if opens else 2)

    def enter(self, x: Tensor) -> Blocks:
        return Blocks(None, None, widened(x), -1, x.dtype)

    def read(self, state: Blocks) -> tuple[Tensor, Blocks]:
        partial, done = _open(state), state.done
        if self.block == state.block:
            return self.leave(state), state
        scales = joined(state.scales, self.aggregate.scale(partial))
        source = partial.unsqueeze(-2)
        groups = (source,) if done is None else (done, source)
        # The very first site too: its one source is weighted by 1, but its parameters are used as in the full form.
        finished = Blocks(torch.cat(groups, dim=-2), scales, None, self.block, state.dtype)
        return self.aggregate(groups, scales).to(state.dtype), finished

    def write(self, state: Blocks, y: Tensor) -> Blocks:
        return state._replace(partial=widened(y) if state.partial is None else state.partial + y)

    def leave(self, state: Blocks) -> Tensor:
        partial = _open(state)
        if state.done is None:
            return partial.to(state.dtype)
        scales = joined(state.scales, self.aggregate.scale(partial))
        return self.aggregate((state.done, partial.unsqueeze(-2)), scales).to(state.dtype)

    def closed_form(self, at: Lengths) -> int:
        """4 S d FLOPs a token at a site that reads S sources: the embedding, the finished blocks and the open one,
        which is not there yet where it opens. Of layers that all have a sublayer.
        """
        return at.batch * at.tokens * 4 * self.sources * self.aggregate.dim


def _open(state: Blocks) -> Tensor:
    assert state.partial is not None, "the site before did not write"
    return state.partial
