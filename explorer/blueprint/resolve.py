"""From the values of all fields to a plan of the model, or every reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from explorer.blueprint.fields import DECODER, FIELDS, MISSING, READ_BY_STACK
from explorer.blueprint.plan import UNNAMED, BlockPlan, Dropout, EmbeddingPlan, ModelPlan, StackPlan
from explorer.blueprint.reading import BAD, Reader
from explorer.blueprint.state import Fields, Setting, State
from explorer.blueprint.tree import node_of
from explorer.errors import NOWHERE
from explorer.registry.chosen import Chosen

NORMS_AT_THE_END = frozenset({"pre", "sandwich", "res_post"})


def resolve(state: State, reader: Reader) -> ModelPlan | None:
    """The plan; None where problems stand against it, those in the reader before included."""
    check(state, reader)
    return None if reader.problems else _plan(state)


def _plan(state: State) -> ModelPlan:
    model = {name: setting.value for name, setting in state.model.items()}
    embedding = model["embedding"]
    scale, norm = embedding.given("scale"), embedding.given("norm")
    stacks = tuple(_stack_plan(state, stack) for stack in state.real_stacks)
    return ModelPlan(
        dim=model["dim"],
        vocab=model["vocab"],
        embedding=EmbeddingPlan(
            scale=math.sqrt(model["dim"]) if scale == "sqrt_dim" else scale,
            norm=stacks[-1].base.norm if norm is True else norm,
            types=embedding.given("types"),
        ),
        head=model["head"],
        tie_embeddings=model["tie_embeddings"],
        stacks=stacks,
        init=model["init"],
        seed=model["seed"],
    )


def _stack_plan(state: State, stack: str) -> StackPlan:
    fields = state.stacks[stack]
    blocks = {name: _block_plan(state, stack, name) for name in state.blocks}
    return StackPlan(
        name=stack,
        blocks=blocks,
        layers=fields["layers"].value,
        layers_written=fields["layers"].written,
        residual=fields["residual"].value,
        final_norm=_final_norm(fields["final_norm"].value, blocks[UNNAMED]),
    )


def _final_norm(value: Any, base: BlockPlan) -> Chosen | None:
    if value == "auto":
        return base.norm if base.placement in NORMS_AT_THE_END else None
    if value == "none":
        return None
    return base.norm if value is True else value


def _block_plan(state: State, stack: str, name: str) -> BlockPlan:
    fields = {field: setting.value for field, setting in state.cells[stack, name].items()}
    if fields["heads"] is MISSING:
        # No layer is of this block; what the stack takes from it needs some width of a head.
        first = state.cells[stack, state.stacks[stack]["layers"].value[0]]
        fields |= {"heads": first["heads"].value, "head_dim": first["head_dim"].value}
    layout = fields["layout"]
    rates = fields["dropout"]
    return BlockPlan(
        name=name,
        heads=fields["heads"],
        head_dim=effective_head_dim(fields["head_dim"], fields["heads"], state.model["dim"].value),
        norm=fields["norm"],
        placement=fields["placement"],
        shared_norm=layout.given("shared_norm") if _parallel(layout) else None,
        position=fields["position"],
        attention=fields["attention"],
        cross_attention=(fields["cross_attention"] or fields["attention"]) if stack == DECODER else None,
        feedforward=fields["feedforward"],
        activation=fields["activation"],
        bias=fields["bias"],
        causal=fields["causal"],
        window=fields["window"],
        dropout=Dropout(**{place: float(rates.given(place)) for place in rates.component.schema.parameters}),
    )


def effective_head_dim(head_dim: int | None, heads: int, dim: int) -> int:
    """The written width of a head, else dim / heads (checked before to divide where there is an attention)."""
    return head_dim or max(1, dim // heads)


def check(state: State, reader: Reader) -> None:
    """Note everything that stands against a plan. What could not be read was noted before."""
    _require(state.model, "dim", "", reader)
    for stack in state.real_stacks:
        _check_stack(state, stack, reader)
    _check_model(state, reader)
    for stack, block, name, setting in _settings(state):
        if setting.lacks and isinstance(setting.value, Chosen):
            _check_required(_at(stack, block, name), setting.value, reader)
        elif setting.lacks:
            _unusable_default(_at(stack, block, name), name, reader)


def _check_stack(state: State, stack: str, reader: Reader) -> None:
    layers = state.stacks[stack]["layers"]
    for name in dict.fromkeys(() if layers.value is BAD else layers.value):
        if name not in state.blocks:
            reader.problem(layers.where, _at(stack, "", "layers"), f"there is no block '{name}'", state.no_block(name))
    for (this, block), fields in state.cells.items():
        if this == stack and state.in_use(stack, block):
            _check_block(state, stack, block, reader)
            _require(fields, "heads", _at(stack, block), reader)


def _check_block(state: State, stack: str, block: str, reader: Reader) -> None:
    fields = state.cells[stack, block]
    crosses = _crosses(stack, fields)
    if _good(state.model, "dim") and _good(fields, "heads", "head_dim", "attention"):
        attends = not fields["attention"].value.is_none or crosses
        if attends and fields["head_dim"].value is None:
            _check_heads(state.model["dim"], fields["heads"], _at(stack, block, "heads"), reader)
    layout = fields["layout"]
    if _good(fields, "layout") and _parallel(layout.value) and crosses:
        message = "a parallel layout is defined for self-attention and feed-forward only, not with cross-attention"
        reader.problem(layout.where, _at(stack, block, "layout"), message, ["write `cross_attention: none`"])
    cross = fields["cross_attention"]
    if isinstance(cross.value, Chosen) and not cross.value.is_none and not state.split:
        message = "only the decoder of an encoder-decoder has cross-attention"
        lines = ["write `encoder: {}` and `decoder: {}`"]
        reader.problem(cross.where, _at(stack, block, "cross_attention"), message, lines)


def _good(fields: Fields, *names: str) -> bool:
    """Whether all of these fields have a value."""
    return all(fields[name].value is not BAD and fields[name].value is not MISSING for name in names)


def _parallel(layout: Chosen) -> bool:
    return "shared_norm" in layout.component.schema.parameters


def _unusable_default(path: str, name: str, reader: Reader) -> None:
    """Say what reading the default said, which nobody asked for before: not installed, or offered by two packages."""
    fresh = reader.afresh()
    fresh.value(FIELDS[name].shape, node_of(FIELDS[name].default), name)
    for problem in fresh.problems:
        reader.problem(NOWHERE, path, f"its default cannot be used: {problem.message}", problem.hints)


def _check_heads(dim: Setting, heads: Setting, path: str, reader: Reader) -> None:
    if dim.value % heads.value == 0:
        return
    close = sorted(_divisors(dim.value), key=lambda n: (abs(n - heads.value), n))[:4]
    where = heads.where if heads.where != NOWHERE else dim.where
    ratio = f"{dim.value}/{heads.value} = {dim.value / heads.value:.2f}"
    message = f"heads {heads.value} does not divide dim {dim.value} ({ratio})"
    reader.problem(where, path, message, [f"heads that do: {', '.join(map(str, sorted(close)))}; or give `head_dim`"])


def _divisors(number: int) -> Iterator[int]:
    for n in range(1, math.isqrt(number) + 1):
        if number % n == 0:
            yield from {n, number // n}


def _crosses(stack: str, fields: Fields) -> bool:
    cross = fields["cross_attention"].value or fields["attention"].value
    return stack == DECODER and isinstance(cross, Chosen) and not cross.is_none


def _check_model(state: State, reader: Reader) -> None:
    tie, vocab = state.model["tie_embeddings"], state.model["vocab"]
    if tie.value is True and vocab.value is None:
        reader.problem(tie.where, "tie_embeddings", "there is no table to tie: write `vocab`, or tie_embeddings: false")


def _require(fields: Mapping[str, Setting], name: str, path: str, reader: Reader) -> None:
    if fields[name].value is MISSING:
        message = f"'{name}' must be written; it has no default"
        lines = [f"write `{name}: ...`, {FIELDS[name].shape.text}"]
        reader.problem(NOWHERE, f"{path}.{name}" if path else name, message, lines)


def _settings(state: State) -> Iterator[tuple[str, str, str, Setting]]:
    """Every setting that the model reads, with its stack, block and field."""
    yield from (("", "", name, setting) for name, setting in state.model.items())
    for stack in state.real_stacks:
        yield from ((stack, "", name, setting) for name, setting in state.stacks[stack].items())
        for block in state.blocks:
            fields, used = state.cells[stack, block], state.in_use(stack, block)
            for name, setting in fields.items():
                if (used or name in READ_BY_STACK) and stack in FIELDS[name].stacks:
                    yield stack, block, name, setting


def _check_required(path: str, chosen: Chosen, reader: Reader) -> None:
    for name in chosen.missing():
        kind = chosen.component.kind.name
        parameter = chosen.component.schema.parameters[name]
        lines = [f"write {{{chosen.name}: {{{name}: ...}}}}, {parameter.type_text}"]
        reader.problem(chosen.where, path, f"{kind} '{chosen.name}' needs {name}", lines)
    for name, inner in chosen.nested():
        _check_required(f"{path}.{name}", inner, reader)


def _at(stack: str, block: str, name: str = "") -> str:
    parts = [stack, f"blocks.{block}" if block not in ("", UNNAMED) else "", name]
    return ".".join(part for part in parts if part)
