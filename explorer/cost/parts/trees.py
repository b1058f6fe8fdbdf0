"""Trees of tensors: states of the residual stream and arguments of parts, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import Tensor

_PLAIN = (bool, int, float, complex, str, bytes, range, Fraction, torch.dtype, torch.device, torch.memory_format)


@dataclass(frozen=True)
class Like:
    """What two tensors must have in common to cost the same: shape, strides, dtype, whether gradients are wanted.

    The stride of an axis of one element says nothing: it is that of a tensor without gaps.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    grad: bool = False

    @staticmethod
    def of(tensor: Tensor) -> Like:
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        return Like(shape, _canonical(shape, stride) if 1 in shape else stride, tensor.dtype, tensor.requires_grad)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; an axis of stride 0 is one element wide."""
        sizes = (size if stride else min(size, 1) for size, stride in zip(self.shape, self.stride, strict=True))
        return prod(sizes) * self.dtype.itemsize

    def make(self, device: torch.device | str = "meta") -> Tensor:
        """A fresh tensor like it, a leaf of the graph."""
        fresh = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)
        return fresh.requires_grad_(self.grad)


def _canonical(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    found, gapless = list(stride), 1
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            found[axis] = gapless
        gapless = found[axis] * shape[axis]
    return tuple(found)


@dataclass(frozen=True)
class Tree:
    """How a tree nests its tensors, and all that stands in it besides them; equal and hashable by value."""

    form: Hashable


@dataclass(frozen=True, eq=False)
class _Opaque:
    """An object that cannot be compared by value: equal to itself only."""

    value: Any


_HOLE = ("tensor",)


def take_apart(tree: Any) -> tuple[Tree, list[Tensor]]:
    """How a tree nests its tensors, and the tensors in order.

    Mappings, sequences, named tuples and dataclasses are taken apart; any other object is equal to itself only.
    """
    tensors: list[Tensor] = []
    return Tree(_form(tree, tensors)), tensors


def put_together(tree: Tree, tensors: list[Tensor]) -> Any:
    """The tree again, with these tensors in their places; containers are new ones."""
    return _filled(tree.form, iter(tensors))


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors of a tree, in order."""
    return take_apart(tree)[1]


def _form(tree: Any, tensors: list[Tensor]) -> Hashable:
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return _HOLE
    if tree is None or isinstance(tree, _PLAIN):
        return "plain", type(tree), tree
    if isinstance(tree, Mapping):
        return "mapping", tuple((key, _form(value, tensors)) for key, value in tree.items())
    if isinstance(tree, list | tuple):
        kind = "named" if hasattr(tree, "_fields") else "sequence"
        return kind, type(tree), tuple(_form(item, tensors) for item in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        held = tuple((field.name, _form(getattr(tree, field.name), tensors)) for field in fields(tree))
        return "dataclass", type(tree), held
    return "opaque", _Opaque(tree)


def _filled(form: Any, tensors: Iterator[Tensor]) -> Any:
    if form is _HOLE:
        return next(tensors)
    kind, *rest = form
    if kind == "plain":
        return rest[1]
    if kind == "opaque":
        return rest[0].value
    if kind == "mapping":
        return {key: _filled(value, tensors) for key, value in rest[0]}
    if kind == "dataclass":
        return _dataclass(rest[0], {name: _filled(value, tensors) for name, value in rest[1]})
    items = [_filled(item, tensors) for item in rest[1]]
    return rest[0](*items) if kind == "named" else rest[0](items)


def _dataclass(kind: type, values: Mapping[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
