"""Components that say they compute what another one does: what comparisons of their times rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from explorer.assembly.declared import padding_only
from explorer.assembly.model import BlockModule
from explorer.blueprint.workload import Workload
from explorer.errors import BlueprintError, RefusedError, UsageError
from explorer.latency.runner import Feed
from explorer.latency.same_step import compare_runs, twin_runs
from explorer.latency.twins import Twin, declared_equal
from explorer.registry.registry import Component, NameProblem, Registry
from explorer.testing.checks.cross import as_cross_attention
from explorer.testing.checks.decoding import hide_column, padding
from explorer.testing.checks.settings import accepted_settings
from explorer.testing.expect import Unmet, expect, not_declared
from explorer.testing.toy import BATCH, DIM, TOKENS, Changes, Toy, vectors
from explorer.testing.values import plain_names

_NOTHING: Changes = {}
_STEP = Workload(batch=BATCH, tokens=TOKENS, source=3, dtype="float32")
_WHOLE = {"results": _STEP, "gradients": replace(_STEP, phase="train")}
_CACHED = {"cached step": replace(_STEP, phase="decode", tokens=1, context=TOKENS)}
"""What is compared, and the step that shows it."""


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
    one, same = (_built(each, as_cross_attention(each), "decoder.block") for each in (toy, other))
    if one is not None and same is not None:
        _expect_same_steps(one, same, f"'{other.component.label}' as cross-attention", source=True)


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
    _expect_same_steps(one, same, what)
    limits = _limits(one, same)
    if "mask" not in limits:
        _expect_same_steps(one, same, f"{what} under a mask of padding", mask=padding(1))
    if "mask" not in limits and not (padding_only(one) or padding_only(same)):
        _expect_same_steps(one, same, f"{what} under a mask", mask=hide_column(1))


def _limits(one: BlockModule, same: BlockModule) -> set[str]:
    return {*one.stack.intake.limits, *same.stack.intake.limits}


def _expect_same_steps(
    one: BlockModule, same: BlockModule, what: str, *, source: bool = False, mask: Tensor | None = None
) -> None:
    """Compared as before they are timed; the masks are those of a whole text, which a cached step does not take."""
    for seed, block in enumerate((one, same)):
        _scatter(block, seed)
    cached = {} if mask is not None or "cache" in _limits(one, same) else _CACHED
    for compared, workload in {**_WHOLE, **cached}.items():
        runs = twin_runs(one, same, workload.settled(encoder=source), Feed(DIM, source=source), device="cpu")
        found = compare_runs(*(replace(run, forward=partial(run.forward, mask=mask)) for run in runs))
        expect(found.ok, f"the {compared} of {what}, within rounding", str(found.reason).removeprefix("not compared: "))


@torch.no_grad()
def _scatter(block: BlockModule, seed: int) -> None:
    """Away from the start values: biases of zero and gains of one hide weights that were not taken over."""
    for number, parameter in enumerate(block.parameters()):
        parameter.add_(0.1 * vectors(*parameter.shape, seed=1000 * seed + number) if parameter.ndim else 0.1 + seed)
