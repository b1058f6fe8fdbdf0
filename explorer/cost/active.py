"""How many parameters one pass really uses: observed by storage, so that a view of a weight counts as that weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from explorer.assembly.position import Position
from explorer.cost.ledger.causal_bias import causal_biases
from explorer.cost.ledger.free import family
from explorer.cost.ledger.operators import is_composite, named_arguments


def active_parameters(module: nn.Module, run: Callable[[], object]) -> tuple[int | None, str | None]:
    """(distinct parameters that `run()`, a pass of one token through `module`, uses, None), or (None, why not known).

    A parameter counts whole, an embedding table too; of one that is indexed or multiplied in groups, what is taken:
    rows or slices. Those of a `Position` are tables: whole. `run` works on meta, where an index has no values, so
    rows that two different indices take from one weight may coincide: that is not known.
    """
    uses = _Uses(module)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), causal_biases(), uses:
        result = run()
    uses.consume(tree_leaves(result))
    return uses.total()


@dataclass
class _Weight:
    """A parameter and what was seen of it."""

    name: str
    size: int
    table: bool
    whole: bool = False
    index: Tensor | None = None
    parts: dict[tuple[int, int], int] = field(default_factory=dict)
    """(offset of the view, offset into the index) -> elements taken."""

    def used(self) -> int:
        if self.whole or (self.table and self.parts):
            return self.size
        return min(sum(self.parts.values()), self.size)


class _Uses(TorchDispatchMode):
    """Follows parameters, and what is computed from parameters alone, until an operator mixes them with data."""

    supports_higher_order_operators = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._weights: list[_Weight] = []
        self._made_of: dict[int, list[_Weight]] = {}  # storage -> the weights that it holds or was computed from
        self._copies: set[int] = set()  # storages that hold one weight element by element
        self._kept: list[Tensor] = []  # alive, so that no later storage takes their place
        self._reason: str | None = None
        tables = {id(p) for part in module.modules() if isinstance(part, Position) for p in part.parameters()}
        for name, parameter in module.named_parameters():
            self._register(name, parameter, id(parameter) in tables)

    def _register(self, name: str, parameter: nn.Parameter, table: bool) -> None:
        storage = _storage(parameter)
        if storage not in self._made_of:
            self._weights.append(_Weight(name, parameter.numel(), table))
            self._made_of[storage] = self._weights[-1:]
            self._copies.add(storage)
            self._kept.append(parameter)
        elif self._made_of[storage][0].size != parameter.numel():
            self._unknown(f"{self._made_of[storage][0].name} and {name} are parts of one storage")

    def total(self) -> tuple[int | None, str | None]:
        """What `active_parameters` answers."""
        if self._reason is not None:
            return None, self._reason
        return sum(weight.used() for weight in self._weights), None

    def consume(self, leaves: Iterable[Any]) -> None:
        """Everything that these tensors were made of is used, whole."""
        for leaf in leaves:
            for weight in self._origin(leaf):
                weight.whole = True

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(self._origin(tensor) for tensor in tensors):
            return out
        if isinstance(func, HigherOrderOperator):
            self.consume(tensors)
        elif family(func) not in ("view", "allocation"):
            self._observe(func._schema.name, named_arguments(func, args, kwargs), tensors, out)
        return out

    def _observe(self, name: str, given: Mapping[str, Any], tensors: list[Tensor], out: Any) -> None:
        taken = _taken(name, given, out)
        if taken is not None and self._origin(taken.source):
            self.consume(tensor for tensor in tensors if tensor is not taken.source)
            self._take(taken)
        elif all(self._origin(tensor) for tensor in tensors):
            self._derive(tensors, [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)])
        else:
            self.consume(tensors)

    def _derive(self, tensors: list[Tensor], results: list[Tensor]) -> None:
        """A cast, a stack or a sum of weights is not yet a use."""
        weights = list({id(weight): weight for tensor in tensors for weight in self._origin(tensor)}.values())
        for result in results:
            if self._origin(result):
                continue  # in place
            self._made_of[_storage(result)] = weights
            self._kept.append(result)
            if len(tensors) == 1 and _storage(tensors[0]) in self._copies and result.numel() == tensors[0].numel():
                self._copies.add(_storage(result))

    def _take(self, taken: _Taken) -> None:
        weights = self._origin(taken.source)
        if _storage(taken.source) not in self._copies:
            names = ", ".join(weight.name for weight in weights)
            self._unknown(f"rows are taken of what was computed from {names}")
            return
        weight, index = weights[0], taken.index
        if weight.index is not None and _storage(weight.index) != _storage(index):
            self._unknown(f"{weight.name} is indexed more than once: the same rows may be taken again")
        weight.index = index
        place = int(taken.source.storage_offset()), int(index.storage_offset())
        weight.parts[place] = max(taken.elements, weight.parts.get(place, 0))

    def _unknown(self, reason: str) -> None:
        """The first reason is the one to tell."""
        self._reason = self._reason or reason

    def _origin(self, leaf: Any) -> list[_Weight]:
        """The weights that a tensor views, copies or was computed from."""
        return self._made_of.get(_storage(leaf), []) if isinstance(leaf, Tensor) else []


@dataclass(frozen=True)
class _Taken:
    """A part of `source`, `elements` in number, chosen by `index`."""

    source: Tensor
    index: Tensor
    elements: int


_INDEXED = {"aten::index": "indices", "aten::index_select": "index", "aten::gather": "index", "aten::take": "index"}
_GROUPED = {
    "aten::_grouped_mm": ("self", "mat2", "offs"),
    "aten::_scaled_grouped_mm": ("self", "mat2", "offs"),
    "explorer::grouped": ("x", "weight", "offsets"),
}
"""Arguments of products by group: rows, matrices, offsets."""


def _taken(name: str, given: Mapping[str, Any], out: Any) -> _Taken | None:
    """What an operator takes of its argument; None: everything."""
    if name in _INDEXED:
        index = next(leaf for leaf in tree_leaves(given[_INDEXED[name]]) if isinstance(leaf, Tensor))
        return _Taken(given["self"], index, min(out.numel(), given["self"].numel()))
    if name in _GROUPED:
        left, right, offsets = _GROUPED[name]
        if given[left].dim() == 2 and given[right].dim() == 3:
            groups, *matrix = given[right].shape
            # The rows of one token go to different groups, so each of them meets a slice of its own.
            slices = min(given[left].shape[0], groups)
            return _Taken(given[right], given[offsets], slices * torch.Size(matrix).numel())
    return None


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
