"""The base class of residuals: how a sublayer's output joins the stream that runs past it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from explorer.blueprint.fields import PLACEMENTS as PLACEMENTS


class Residual(nn.Module):
    """One residual site: `x, s = read(s)`, the sublayer makes y from x, `s = write(s, y)`.

    The state is whatever `enter` makes of the embedding (the tensor (B, T, dim) itself here) and lives to the end of
    the stack; `read` may put anything into it for its own `write`. Only `write` has to be given.
    A class that overrides `leave` is built once more for the end of the stack, with `site.end` true: it then builds
    only what `leave` needs.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS
    """The norm placements for which the update is defined; others are refused."""

    def enter(self, x: Tensor) -> Any:
        """The state at the start of the stack; called on the first site only."""
        return x

    def read(self, state: Any) -> tuple[Tensor, Any]:
        """What the sublayer sees, (B, T, dim), and the state for `write`."""
        return state, state

    def write(self, state: Any, y: Tensor) -> Any:
        """The state after the sublayer gave y, (B, T, dim)."""
        raise NotImplementedError(f"residual {type(self).__name__} must define write(state, y)")

    def leave(self, state: Any) -> Tensor:
        """What the end of the stack reads, (B, T, dim); called on the extra site with `site.end`."""
        return state

    def init_branch(self, weights: Mapping[str, Sequence[Tensor]]) -> None:
        """Rescale a sublayer's fresh weights {"value": [...], "input": [...], "output": [...]}, if a paper says so."""
