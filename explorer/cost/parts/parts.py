"""How each part of a pass is called, and what makes two of them the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.assembly.cache import CacheView
from explorer.assembly.embedding import Embedding
from explorer.assembly.residual import Residual
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import Branch
from explorer.assembly.wiring import Wiring
from explorer.cost.parts.part import Call, Inputs, Kind, Part, Role
from explorer.cost.parts.promises import keep_promise
from explorer.registry.chosen import Chosen


@dataclass(frozen=True)
class Parts:
    """Makes parts. kind: what modules share that do the same to inputs that are alike."""

    kind: Callable[[nn.Module | None], Kind]

    def embed(self, role: Role, stack: Stack, table: Embedding | None, offset: int) -> Part:
        """Token ids, or vectors as they are, with what is added to them; `offset` tokens stand before."""
        modules = tuple(module for module in (table, *stack._position) if module is not None)
        key = *map(self.kind, (table, *stack._position)), stack.dropout, offset
        return Part(role, ("embed", key), lambda x, view: stack.embed(x, table, offset), modules, switched=(stack,))

    def enter(self, role: Role, residual: Residual) -> Part:
        return self._residual(role, residual, lambda x, view: residual.enter(x))

    def read(self, role: Role, residual: Residual) -> Part:
        return self._residual(role, residual, lambda state, view: residual.read(state))

    def write(self, role: Role, residual: Residual) -> Part:
        """Takes {"state": ..., "y": ...}."""
        return self._residual(role, residual, lambda given, view: residual.write(**given))

    def leave(self, role: Role, residual: Residual) -> Part:
        return self._residual(role, residual, lambda state, view: residual.leave(state))

    def norm(self, role: Role, norm: nn.Module, chosen: Chosen) -> Part:
        check = partial(keep_promise, chosen)
        return Part(role, ("norm", self.kind(norm)), lambda x, view: norm(x), (norm,), check=check)

    def branch(self, role: Role, branch: Branch, chosen: Chosen, cached: bool, filling: Inputs | None = None) -> Part:
        """One sublayer; takes what `branch_inputs` gives and returns (y, what layers share)."""
        modules, wiring = (branch.module, *branch.positions), branch.wiring
        key = "branch", role.sublayer, tuple(map(self.kind, modules)), wiring.names
        takes = "cache" in wiring.names
        call = partial(_run_branch, branch.module, wiring)
        check = partial(_keeps, chosen)
        return Part(role, key, call, modules, cached and takes, check, filling, takes_cache=takes)

    def dropout(self, role: Role, rate: float, training: bool) -> Part:
        return Part(role, ("dropout", rate, training), lambda y, view: F.dropout(y, rate, training))

    def sum(self, role: Role) -> Part:
        """The sum of a parallel layer's outputs."""
        return Part(role, ("sum",), lambda outputs, view: _added(outputs))

    def head(self, role: Role, head: nn.Module, table: Embedding | None) -> Part:
        """table: the input's, which may be the head's too."""
        modules = (head,) if table is None else (head, table)
        return Part(role, ("head", tuple(map(self.kind, modules))), lambda h, view: head(h), modules)

    def loss(self, role: Role) -> Part:
        """Takes {"logits": ..., "targets": ...}."""
        return Part(role, ("loss",), lambda given, view: cross_entropy(**given))

    def _residual(self, role: Role, residual: Residual, call: Call) -> Part:
        return Part(role, (role.name, self.kind(residual)), call, (residual,))


def branch_inputs(wiring: Wiring, x: Tensor, offered: Mapping[str, Any]) -> dict[str, Any]:
    """x, and what of the context, the ids and the shared values a sublayer takes."""
    return {"x": x, **{name: offered[name] for name in wiring.names if name in offered}}


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood of every token, in float32 as training code has it.

    logits (B, T, vocab), targets (B, T).
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _run_branch(module: nn.Module, wiring: Wiring, given: Mapping[str, Any], view: CacheView | None) -> Any:
    others = {"mask": None, "cache": view}
    arguments = {name: given[name] if name in given else others[name] for name in wiring.names}
    return module(given["x"], **arguments), given.get("shared")


def _keeps(chosen: Chosen, given: Mapping[str, Any], result: tuple[Any, Any]) -> None:
    keep_promise(chosen, given["x"], result[0])


def _added(outputs: Sequence[Tensor]) -> Tensor:
    total = outputs[0]
    for y in outputs[1:]:
        total = total + y
    return total
