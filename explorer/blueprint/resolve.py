"""From the values of all fields to a plan of the model, or every reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from explorer.blueprint.fields import BLOCK, DECODER, FIELDS, MISSING, MODEL, READ_BY_STACK, STACK
from explorer.blueprint.partial import Reads, exactly, presence
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
    return None if reader.problems else plan_of(state)


def plan_of(state: State) -> ModelPlan:
    """The plan of a state that nothing stands against."""
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


Note = Callable[[State, str, str, Reader], None]


@dataclass(frozen=True)
class Check:
    """One thing that may stand against a plan: ``note(state, stack, block, reader)`` says so to the reader.

    level: whether it is asked of the model, of every stack or of every block. reads: the fields that it looks at,
    besides the layers that say which blocks are in use. unused: it is asked of blocks that are not, too.
    """

    level: str
    note: Note
    reads: Reads
    unused: bool = False


def check(state: State, reader: Reader, phases: Sequence[Sequence[Check]] | None = None) -> None:
    """Note everything that stands against a plan. What could not be read was noted before.

    phases: the checks to make, those of a phase in every block before those of the next; None: all.
    """
    for checks in PHASES if phases is None else phases:
        of_model, of_stacks, of_blocks = ([c for c in checks if c.level == level] for level in (MODEL, STACK, BLOCK))
        for each in of_model:
            each.note(state, "", "", reader)
        for stack in state.real_stacks:
            for each in of_stacks:
                each.note(state, stack, "", reader)
            for block in state.blocks:
                used = state.in_use(stack, block)
                for each in of_blocks:
                    if used or each.unused:
                        each.note(state, stack, block, reader)


def _check_dim(state: State, stack: str, block: str, reader: Reader) -> None:
    _require(state.model, "dim", "", reader)


def _check_layers(state: State, stack: str, block: str, reader: Reader) -> None:
    layers = state.stacks[stack]["layers"]
    for name in dict.fromkeys(() if layers.value is BAD else layers.value):
        if name not in state.blocks:
            reader.problem(layers.where, _at(stack, "", "layers"), f"there is no block '{name}'", state.no_block(name))


def _check_heads(state: State, stack: str, block: str, reader: Reader) -> None:
    """Heads must divide dim where there is an attention and no width of a head is written."""
    fields = state.cells[stack, block]
    if _good(state.model, "dim") and _good(fields, "heads", "head_dim", "attention"):
        attends = not fields["attention"].value.is_none or _crosses(stack, fields)
        if attends and fields["head_dim"].value is None:
            _check_divides(state.model["dim"], fields["heads"], _at(stack, block, "heads"), reader)


def _check_layout(state: State, stack: str, block: str, reader: Reader) -> None:
    fields = state.cells[stack, block]
    layout = fields["layout"]
    if _good(fields, "layout") and _parallel(layout.value) and _crosses(stack, fields):
        message = "a parallel layout is defined for self-attention and feed-forward only, not with cross-attention"
        reader.problem(layout.where, _at(stack, block, "layout"), message, ["write `cross_attention: none`"])


def _check_crossing(state: State, stack: str, block: str, reader: Reader) -> None:
    cross = state.cells[stack, block]["cross_attention"]
    if isinstance(cross.value, Chosen) and not cross.value.is_none and not state.split:
        message = "only the decoder of an encoder-decoder has cross-attention"
        lines = ["write `encoder: {}` and `decoder: {}`"]
        reader.problem(cross.where, _at(stack, block, "cross_attention"), message, lines)


def _require_heads(state: State, stack: str, block: str, reader: Reader) -> None:
    _require(state.cells[stack, block], "heads", _at(stack, block), reader)


def _check_tie(state: State, stack: str, block: str, reader: Reader) -> None:
    tie, vocab = state.model["tie_embeddings"], state.model["vocab"]
    if tie.value is True and vocab.value is None:
        reader.problem(tie.where, "tie_embeddings", "there is no table to tie: write `vocab`, or tie_embeddings: false")


def _check_setting(name: str, state: State, stack: str, block: str, reader: Reader) -> None:
    """Note what a field lacks that its model reads: a required parameter, or an installed default."""
    if stack not in FIELDS[name].stacks:
        return
    level = FIELDS[name].level
    holder = state.model if level == MODEL else state.stacks[stack] if level == STACK else state.cells[stack, block]
    setting, path = holder[name], _at(stack, block, name)
    if setting.lacks and isinstance(setting.value, Chosen):
        _check_required(path, setting.value, reader)
    elif setting.lacks:
        _unusable_default(path, name, reader)


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


def _check_divides(dim: Setting, heads: Setting, path: str, reader: Reader) -> None:
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


def _require(fields: Fields, name: str, path: str, reader: Reader) -> None:
    if fields[name].value is MISSING:
        message = f"'{name}' must be written; it has no default"
        lines = [f"write `{name}: ...`, {FIELDS[name].shape.text}"]
        reader.problem(NOWHERE, f"{path}.{name}" if path else name, message, lines)


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


def _lack(setting: Setting) -> Hashable:
    return exactly(setting) if setting.lacks else None


PHASES: tuple[tuple[Check, ...], ...] = (
    (
        Check(MODEL, _check_dim, {"dim": presence}),
        Check(STACK, _check_layers, {"layers": exactly}),
        Check(
            BLOCK,
            _check_heads,
            {"dim": exactly, "heads": exactly, **dict.fromkeys(("head_dim", "attention", "cross_attention"), presence)},
        ),
        Check(BLOCK, _check_layout, {"layout": exactly, "attention": presence, "cross_attention": presence}),
        Check(BLOCK, _check_crossing, {"cross_attention": exactly}),
        Check(BLOCK, _require_heads, {"heads": presence}),
    ),
    (
        Check(MODEL, _check_tie, {"tie_embeddings": exactly, "vocab": presence}),
        *(
            Check(field.level, partial(_check_setting, field.name), {field.name: _lack}, field.name in READ_BY_STACK)
            for field in FIELDS.values()
        ),
    ),
)
"""What ``check`` notes, in the order in which it does."""
