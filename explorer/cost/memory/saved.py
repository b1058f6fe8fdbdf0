"""What autograd keeps of one call until its backward: activations, observed through torch's saved-tensor hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from explorer.cost.parts.storages import Storages, address
from explorer.cost.parts.trees import put_together, take_apart, tensors_in


@dataclass(frozen=True)
class Kept:
    """Bytes of storages made inside a call that did not go out.

    saved: kept by autograd for backward. products: made by an operator whose output selective recomputation keeps, see
    `keeps_output`. both: counted under both.
    """

    saved: int = 0
    products: int = 0
    both: int = 0


@dataclass(frozen=True)
class Crossing:
    """A storage that came in or went out: its bytes, whether autograd keeps it, whether a product made it here."""

    nbytes: int
    saved: bool
    product: bool = False


@dataclass(frozen=True)
class Saved:
    """What one call keeps.

    crossings: the storages of all tensors that came in and went out, each once, however many tensors lie in it.
    inputs, outputs: for each tensor of the tree, in order, the place of its storage among them; None: a weight, or
    something else that was there before and did not come in.
    out: what the call returned, as inputs of the next one.
    """

    private: Kept
    crossings: tuple[Crossing, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    out: Any = field(repr=False, compare=False)


def saved_by(call: Callable[[Any], Any], inputs: Any) -> Saved:
    """What autograd keeps when `call(inputs)` runs with gradients; nothing is run backward.

    inputs: a tree of tensors, real ones or, inside `fake_cpu`, fake ones. All that the call reads must come in through
    it, except for weights: what was there before and did not come in, as parameters, buffers and a cache, never counts.
    """
    inputs = leaves(inputs)
    came = tensors_in(inputs)  # before the call: it may put something into a mapping that it was given
    storages = Storages(keeps_output)
    hooked = weakref.WeakSet[_Slot]()

    def pack(tensor: Tensor) -> _Slot:
        slot = _Slot(storages.number(tensor), address(tensor), tensor.detach())
        hooked.add(slot)
        return slot

    with torch.enable_grad(), storages, torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
        out = call(inputs)
    # By now autograd has let go of what only led to results that nobody kept.
    return _saved(storages, set(hooked), came, out)


@dataclass(frozen=True, eq=False)
class _Slot:
    """Held by autograd in the place of a tensor, for as long. number: of a storage made inside. place: its address.

    tensor: the same, without its graph: for a backward that the call runs itself.
    """

    number: int | None
    place: int
    tensor: Tensor


def _unpack(slot: _Slot) -> Tensor:
    return slot.tensor


def _saved(storages: Storages, slots: set[_Slot], inputs: Sequence[Tensor], out: Any) -> Saved:
    numbers = {slot.number for slot in slots if slot.number is not None}
    places = {slot.place for slot in slots if slot.number is None}
    crossings: dict[tuple[str, int], Crossing] = {}  # by the address of what came in, by the number of what went out
    came = [("in", address(tensor)) for tensor in inputs]
    for key, tensor in zip(came, inputs, strict=True):
        crossings[key] = Crossing(tensor.untyped_storage().nbytes(), key[1] in places)
    went: list[tuple[str, int]] = []
    for tensor in tensors_in(out):
        number = storages.number(tensor)
        went.append(("in", address(tensor)) if number is None else ("out", number))
        if number is not None:
            crossings[went[-1]] = Crossing(storages.nbytes[number], number in numbers, number in storages.kept)
    gone = {number for kind, number in went if kind == "out"}
    place = {key: at for at, key in enumerate(crossings)}
    return Saved(
        _kept(storages, numbers - gone, storages.kept - gone),
        tuple(crossings.values()),
        tuple(place[key] for key in came),
        tuple(place.get(key) for key in went),
        leaves(out),
    )


def _kept(storages: Storages, saved: set[int], products: set[int]) -> Kept:
    def total(numbers: Iterable[int]) -> int:
        return sum(storages.nbytes[number] for number in numbers)

    return Kept(total(saved), total(products), total(saved & products))


def leaves(tree: Any) -> Any:
    """The same tensors in the same storages, as leaves of the graph: what flows back ends here."""
    form, tensors = take_apart(tree)
    return put_together(form, [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors])


_PRODUCTS = frozenset(
    {
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "convolution", "_grouped_mm"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
        *("_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math_for_mps"),
        "grouped",
    }
)


def keeps_output(operator: Any) -> bool:
    """Whether selective recomputation keeps what an operator gives: a matrix product, or attention in one kernel.

    As a policy of `torch.utils.checkpoint.create_selective_checkpoint_contexts`: MUST_SAVE where this is true.
    """
    if not isinstance(operator, OpOverload):
        return False
    namespace, name = operator._schema.name.split("::", maxsplit=1)
    return namespace in ("aten", "explorer") and name in _PRODUCTS
