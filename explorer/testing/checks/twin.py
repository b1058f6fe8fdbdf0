"""Components that say they compute what another one does: what comparisons of their times rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.declared import padding_only
from explorer.assembly.model import BlockModule
from explorer.errors import BlueprintError, RefusedError, UsageError
from explorer.latency.parity import Agreement, compare, gate, reduction
from explorer.latency.twins import Twin, declared_equal
from explorer.registry.registry import Component, NameProblem, Registry
from explorer.testing.checks.cross import as_cross_attention
from explorer.testing.checks.decoding import hide_column, padding
from explorer.testing.checks.settings import accepted_settings
from explorer.testing.expect import Unmet, expect, not_declared
from explorer.testing.toy import BATCH, DIM, Changes, Toy, vectors
from explorer.testing.values import plain_names

_SOURCE = 3
_NOTHING: Changes = {}


def same_as_holds(toy: Toy) -> None:
    """a declared `same_as` to name another of its kind, and to equal it with the weights that `load_from` takes over"""
    named = _named(toy)
    other = _alike(toy, named)
    wanted = f"`same_as`, as a name in blueprints, to declare blocks with the two equal: {named.label}"
    expect(declared_equal(toy.plan(), "block", other.plan(), "block"), wanted, "they are not")
    _expect_equal(other, toy.block(), other.block(), _NOTHING)
    for changes in _surroundings(toy, named):
        _expect_equal_if_built(toy, other, changes, changes)
    for moved, setting in accepted_settings(toy):
        _expect_equal_if_built(moved, _alike(moved, named), _NOTHING, setting)
    if toy.kind == "attention":
        _expect_crosses(toy, other)


def _named(toy: Toy) -> Component:
    """The component that this one says it is the same as. Raises: Unmet, SkipTest where it says nothing."""
    constructor = toy.component.constructor
    name = getattr(constructor, "same_as", None)
    if name is None:
        not_declared(f"{toy.kind} '{toy.component.label}' declares no `same_as`")
    expect(isinstance(constructor, Twin), "a method `load_from(other)` beside `same_as`", "none")
    try:
        named = toy.registry.find(toy.kind, name)
    except NameProblem as problem:
        raise Unmet(f"`same_as` to name a {toy.kind}", "\n  ".join([str(problem), *problem.hints])) from None
    expect(named != toy.component and named.constructor is not None, f"`same_as` to name another {toy.kind}", name)
    return named


def _alike(toy: Toy, named: Component) -> Toy:
    """The named component with the options of this one, as far as it has them."""
    options = named.schema.parameters
    return Toy(named, toy.registry, {key: value for key, value in toy.chosen.settings().items() if key in options})


def _surroundings(toy: Toy, named: Component) -> Iterator[Changes]:
    """Fields of a blueprint that either of the two gets from its block, moved off what is usual."""
    around = _around(toy.registry)
    for name in sorted({*toy.component.schema.picks, *named.schema.picks}):
        yield from around.get(name, ())


def _around(registry: Registry) -> Mapping[str, Sequence[Changes]]:
    return {
        "bias": [{"bias": True}],
        "causal": [{"causal": False}],
        "window": [{"window": 2}, {"window": 3, "causal": False}],
        **{kind: [{kind: name} for name in plain_names(kind, registry)] for kind in ("activation", "position")},
    }


def _expect_crosses(toy: Toy, other: Toy) -> None:
    context = vectors(BATCH, _SOURCE, DIM, seed=1)
    one, same = (_built(each, as_cross_attention(each), "decoder.block") for each in (toy, other))
    if one is not None and same is not None:
        _expect_gate(one, same, [vectors(), context], f"'{other.component.label}' as cross-attention")


def _expect_equal_if_built(toy: Toy, other: Toy, changes: Changes, said: Changes) -> None:
    """What one of them refuses is no pair: nobody times the two against each other."""
    one, same = _built(toy, changes), _built(other, changes)
    if one is not None and same is not None:
        _expect_equal(other, one, same, said)


def _built(toy: Toy, changes: Changes, name: str | None = None) -> BlockModule | None:
    try:
        return toy.block(changes, name)
    except (BlueprintError, RefusedError, UsageError):
        return None


def _expect_equal(other: Toy, one: BlockModule, same: BlockModule, said: Changes) -> None:
    """With and without masks, where both take them."""
    what = f"'{other.component.label}'" + "".join(f" with {key}: {value}" for key, value in said.items())
    _expect_gate(one, same, [vectors()], what)
    limits = {*one.stack.intake.limits, *same.stack.intake.limits}
    if "mask" not in limits:
        _expect_gate(one, same, [vectors(), None, padding(1)], f"{what} under a mask of padding")
    if "mask" not in limits and not (padding_only(one) or padding_only(same)):
        _expect_gate(one, same, [vectors(), None, hide_column(1)], f"{what} under a mask")


def _expect_gate(one: BlockModule, same: BlockModule, inputs: Sequence[Any], what: str) -> None:
    for seed, block in enumerate((one, same)):
        _scatter(block.eval(), seed)
    _expect_agreement(gate(one, same, inputs, torch.float32), f"the results of {what}")
    given = [vectors().requires_grad_(), *inputs[1:]]
    slopes = compare(_slope(one), _slope(same), given, torch.float32, reduction(same, inputs))
    _expect_agreement(slopes, f"the gradients of {what}")


@torch.no_grad()
def _scatter(block: BlockModule, seed: int) -> None:
    """Away from the start values: biases of zero and gains of one hide weights that were not taken over."""
    for number, parameter in enumerate(block.parameters()):
        parameter.add_(0.1 * vectors(*parameter.shape, seed=1000 * seed + number) if parameter.ndim else 0.1 + seed)


def _slope(block: BlockModule) -> Callable[..., Tensor]:
    """The gradient of a random weighting of the results by the first input."""

    def slope(x: Tensor, *more: Any) -> Tensor:
        out = block(x, *more)
        return torch.autograd.grad((out * vectors(*out.shape, seed=2)).sum(), x)[0]

    return slope


def _expect_agreement(found: Agreement, what: str) -> None:
    expect(found.ok, f"{what}, within rounding", str(found.reason).removeprefix("not compared: "))
