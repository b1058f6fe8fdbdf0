"""Sublayers with their norms, dropout and residual connection: the five placements and the parallel layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.assembly.position import Position
from explorer.assembly.residual import Residual
from explorer.assembly.wiring import Pass, Wiring

_BEFORE = frozenset({"pre", "sandwich"})
_OUT = frozenset({"sandwich", "res_post"})
_POST = frozenset({"post"})


@dataclass(frozen=True)
class Branch:
    """A sublayer F that was built, what its forward takes, and the dropout rate on its output.

    positions: of the stack, those that it asked for.
    """

    module: nn.Module
    wiring: Wiring
    dropout: float
    positions: tuple[Position, ...] = ()


def norms_at(placement: str, make: Callable[[], nn.Module]) -> dict[str, nn.Module | None]:
    """Fresh norms where a placement has them: `norm` before F, `norm_out` on its output, `norm_post` on the state."""
    return {
        "norm": make() if placement in _BEFORE else None,
        "norm_out": make() if placement in _OUT else None,
        "norm_post": make() if placement in _POST else None,
    }


class Sublayer(nn.Module):
    """One residual site around one sublayer F: `x, s = read(s)`, then

    pre s = write(s, F(N x)), sandwich s = write(s, N2(F(N1 x))), res_post s = write(s, N(F x)),
    post s = N(write(s, F x)), none s = write(s, F x). Dropout acts on F's output.
    """

    def __init__(self, branch: Branch, residual: Residual, norms: Mapping[str, nn.Module | None]) -> None:
        super().__init__()
        self.norm = norms["norm"]
        self.branch = branch.module
        self.norm_out = norms["norm_out"]
        self.residual = residual
        self.norm_post = norms["norm_post"]
        self.wiring = branch.wiring
        self.dropout = branch.dropout
        self.positions = branch.positions  # in a tuple: the stack's, not submodules

    def forward(self, state: Any, run: Pass) -> Any:
        x, state = self.residual.read(state)  # (B, T, dim)
        if self.norm is not None:
            x = self.norm(x)
        y = self.branch(x, **self.wiring.inputs(run))  # (B, T, dim)
        if self.dropout:
            y = F.dropout(y, self.dropout, self.training)
        if self.norm_out is not None:
            y = self.norm_out(y)
        state = self.residual.write(state, y)
        return state if self.norm_post is None else self.norm_post(state)

    @property
    def branches(self) -> tuple[nn.Module, ...]:
        """The sublayers whose output this site's residual adds."""
        return (self.branch,)

    @property
    def wirings(self) -> tuple[Wiring, ...]:
        return (self.wiring,)


class ParallelSublayers(nn.Module):
    """One residual site around all sublayers of a layer: y = sum of F_i(N x), or of F_i(N_i x) with a norm each.

    `norms` holds N1 per sublayer where it is not shared; norms on the output and on the state act once, on the sum.
    """

    def __init__(
        self,
        branches: Mapping[str, Branch],
        residual: Residual,
        norms: Mapping[str, nn.Module | None],
        own_norms: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.norm = norms["norm"]
        self.norms = nn.ModuleDict(dict(own_norms))
        self.sublayers = nn.ModuleDict({name: branch.module for name, branch in branches.items()})
        self.norm_out = norms["norm_out"]
        self.residual = residual
        self.norm_post = norms["norm_post"]
        self.calls = {name: (branch.wiring, branch.dropout) for name, branch in branches.items()}
        self.positions = {name: branch.positions for name, branch in branches.items()}

    def forward(self, state: Any, run: Pass) -> Any:
        x, state = self.residual.read(state)  # (B, T, dim)
        if self.norm is not None:
            x = self.norm(x)
        y = self._sum(x, run)  # (B, T, dim)
        if self.norm_out is not None:
            y = self.norm_out(y)
        state = self.residual.write(state, y)
        return state if self.norm_post is None else self.norm_post(state)

    def _sum(self, x: Tensor, run: Pass) -> Tensor:
        outputs = []
        for name, sublayer in self.sublayers.items():
            wiring, dropout = self.calls[name]
            own = self.norms[name](x) if name in self.norms else x
            y = sublayer(own, **wiring.inputs(run))
            outputs.append(F.dropout(y, dropout, self.training) if dropout else y)
        total = outputs[0]
        for y in outputs[1:]:
            total = total + y
        return total

    @property
    def branches(self) -> tuple[nn.Module, ...]:
        """The sublayers whose outputs this site's residual adds."""
        return tuple(self.sublayers.values())

    @property
    def wirings(self) -> tuple[Wiring, ...]:
        return tuple(wiring for wiring, _ in self.calls.values())
