"""Bytes that an operator reads and writes: numel x itemsize of every tensor, but for the operators named here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

Share = tuple[Tensor, int]
"""A tensor and how many bytes of it are read, or written."""

Given = Mapping[str, Any]
"""The arguments of a call, by the names of the operator's schema."""


@dataclass
class Moved:
    """What one call reads and writes."""

    read: list[Share] = field(default_factory=list)
    written: list[Share] = field(default_factory=list)


def whole(tensor: Tensor) -> Share:
    """All of a tensor."""
    return tensor, nbytes(tensor)


def nbytes(tensor: Tensor) -> int:
    """numel x itemsize; an axis of stride 0, as `expand` makes it, is one element wide."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.itemsize
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size) * (
        tensor.itemsize
    )


def by_rows(x: Tensor, weight: Tensor) -> Share:
    """Of one matrix for each group, those that the rows of x can meet: at most one a row."""
    if x.dim() != 2 or weight.dim() != 3 or not weight.shape[0]:
        return whole(weight)
    return weight, nbytes(weight) // weight.shape[0] * min(weight.shape[0], x.shape[0])


def everything(given: Given, out: Any, unread: frozenset[str] = frozenset()) -> Moved:
    """Every tensor argument is read, but for those of the names `unread`; every result is written.

    In place that is the same tensor: it is read and written.
    """
    read = [whole(tensor) for name, value in given.items() if name not in unread for tensor in tensors(value)]
    return Moved(read, [whole(tensor) for tensor in tensors(out)])


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of one argument or result, however lists, tuples and dicts nest them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)


Rule = Callable[[Given, Any], Moved]


def _without(*unread: str) -> Rule:
    """These arguments give a shape, or are overwritten unread."""
    names = frozenset(unread)
    return lambda given, out: everything(given, out, names)


def _takes(source: str) -> Rule:
    """Of the argument `source` only what comes out is read: rows of a table, not the table."""

    def rule(given: Given, out: Tensor) -> Moved:
        moved = everything(given, out, frozenset((source,)))
        moved.read.append((given[source], out.numel() * out.itemsize))
        return moved

    return rule


def _groups(x: str, weight: str) -> Rule:
    """Of the argument `weight` only the matrices of groups that have rows are read."""

    def rule(given: Given, out: Any) -> Moved:
        moved = everything(given, out, frozenset((weight,)))
        moved.read.append(by_rows(given[x], given[weight]))
        return moved

    return rule


def _puts(count: Callable[[Given], int], adds: Callable[[Given], bool] = lambda given: False) -> Rule:
    """In place only the places that `count` counts are written; they are read too where something is added there."""

    def rule(given: Given, out: Tensor) -> Moved:
        places = given["self"], count(given) * out.itemsize
        moved = everything(given, None, frozenset(("self",)))
        moved.written.append(places)
        if adds(given):
            moved.read.append(places)
        return moved

    return rule


def _elements(name: str) -> Callable[[Given], int]:
    return lambda given: int(given[name].numel())


def _lines(given: Given) -> int:
    """Elements of the lines along `dim` that `index` names."""
    target: Tensor = given["self"]
    if target.dim() == 0:
        return 1
    return int(target.numel() // max(target.shape[given["dim"]], 1) * given["index"].numel())


def _indexed(given: Given) -> int:
    """Elements that `indices` choose: those of the broadcast indices, for each place along the other axes.

    A bool index chooses as many as there are values; a single value goes to all that there are at most.
    """
    target, values = given["self"], given["values"]
    indices = [index for index in given["indices"] if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        return int(values.numel() if values.numel() > 1 else target.numel())
    chosen = torch.broadcast_shapes(*(index.shape for index in indices))
    places = dict(enumerate(given["indices"]))
    others = [size for axis, size in enumerate(target.shape) if places.get(axis) is None]
    return prod(chosen) * prod(others)


def _accumulates(given: Given) -> bool:
    return bool(given.get("accumulate", False))


def _reduces(given: Given) -> bool:
    return "reduce" in given


def _always(given: Given) -> bool:
    return True


def _nll_loss(given: Given, out: Any) -> Moved:
    """One number of each row of `self`, and the targets."""
    moved = everything(given, out, frozenset(("self",)))
    moved.read.append((given["self"], given["target"].numel() * given["self"].itemsize))
    return moved


def _first_result(given: Given, out: Any) -> Moved:
    """The second result and argument are a buffer that only some devices fill."""
    return everything(given, out[0] if isinstance(out, tuple) else out, frozenset(("buffer",)))


def _batch_norm(given: Given, out: tuple[Tensor, ...]) -> Moved:
    """With given statistics none are saved, whatever a device returns for them."""
    return everything(given, out if given.get("training", True) else out[0])


TRAFFIC: Mapping[str, Rule] = {
    **dict.fromkeys(("index", "_unsafe_index", "index_select", "gather", "take"), _takes("self")),
    "embedding": _takes("weight"),
    "explorer::grouped": _groups("x", "weight"),
    "_grouped_mm": _groups("self", "mat2"),
    "copy_": _without("self"),
    "index_put_": _puts(_indexed, _accumulates),
    "_index_put_impl_": _puts(_indexed, _accumulates),
    "index_copy_": _puts(_elements("source")),
    "index_add_": _puts(_elements("source"), _always),
    "index_fill_": _puts(_lines),
    "scatter_": _puts(_elements("index"), _reduces),
    "scatter_add_": _puts(_elements("index"), _always),
    "scatter_reduce_": _puts(_elements("index"), _always),
    "put_": _puts(_elements("index"), _accumulates),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _without("self")),
    **dict.fromkeys(("log_sigmoid_forward", "log_sigmoid_backward"), _first_result),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), _batch_norm),
    **dict.fromkeys(("rand_like", "randn_like", "randint_like"), _without("self")),
    **dict.fromkeys(("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_"), _without("self")),
    **dict.fromkeys(("normal_", "random_", "uniform_"), _without("self")),
}
"""By the name of an operator of torch. A name that ends in `_` works in place; without it all is read and written."""
