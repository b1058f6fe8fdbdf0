"""From the values of all fields to a plan of the model, or every reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from explorer.blueprint.fields import DECODER, FIELDS, MISSING
from explorer.blueprint.plan import UNNAMED, BlockPlan, Dropout, EmbeddingPlan, ModelPlan, StackPlan
from explorer.blueprint.reading import BAD, Reader
from explorer.blueprint.state import Fields, Setting, State
from explorer.errors import NOWHERE, Where, did_you_mean
from explorer.registry.chosen import Chosen

NORMS_AT_THE_END = frozenset({"pre", "sandwich", "res_post"})


def resolve(state: State, reader: Reader) -> ModelPlan | None:
    """The plan; None where problems, now noted in the reader, stand against it."""
    before = len(reader.problems)
    _require(state.model, "dim", "", reader)
    for stack in state.real_stacks:
        _check_stack(state, stack, reader)
    _check_model(state, reader)
    for path, chosen in _components(state):
        _check_required(path, chosen, reader)
    return None if len(reader.problems) > before else _plan(state)


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
    return base.norm if value is True else value


def _block_plan(state: State, stack: str, name: str) -> BlockPlan:
    fields = {field: setting.value for field, setting in state.cells[stack, name].items()}
    layout = fields["layout"]
    rates = fields["dropout"]
    return BlockPlan(
        name=name,
        heads=fields["heads"],
        head_dim=effective_head_dim(fields["head_dim"], fields["heads"], state.model["dim"].value),
        norm=fields["norm"],
        placement=fields["placement"],
        shared_norm=layout.given("shared_norm") if "shared_norm" in layout.component.schema.parameters else None,
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


def _check_stack(state: State, stack: str, reader: Reader) -> None:
    _uninstalled(state.stacks[stack], stack, reader)
    layers = state.stacks[stack]["layers"]
    for name in dict.fromkeys(layers.value):
        if name not in state.blocks:
            lines = [did_you_mean(name, state.blocks), f"blocks: {', '.join(state.blocks[1:]) or 'none are defined'}"]
            reader.problem(layers.where, _at(stack, "", "layers"), f"there is no block '{name}'", lines)
    for (this, block), fields in state.cells.items():
        if this == stack and in_use(state, stack, block):
            _check_block(state, stack, block, fields, reader)


def in_use(state: State, stack: str, block: str) -> bool:
    """Whether a block counts: named ones always, the unnamed one where a layer is of it."""
    return block != UNNAMED or UNNAMED in state.stacks[stack]["layers"].value


def _check_block(state: State, stack: str, block: str, fields: Fields, reader: Reader) -> None:
    _require(fields, "heads", _at(stack, block), reader)
    if _uninstalled(fields, _at(stack, block), reader):
        return
    attends = not fields["attention"].value.is_none or _crosses(stack, fields)
    dim, heads = state.model["dim"].value, fields["heads"]
    known = dim is not MISSING and heads.value is not MISSING
    if attends and known and fields["head_dim"].value is None and dim % heads.value:
        _heads_problem(dim, heads, state.model["dim"].where, _at(stack, block, "heads"), reader)
    layout = fields["layout"]
    if "shared_norm" in layout.value.component.schema.parameters and _crosses(stack, fields):
        message = "a parallel layout is defined for self-attention and feed-forward only, not with cross-attention"
        reader.problem(layout.where, _at(stack, block, "layout"), message, ["write `cross_attention: none`"])
    cross = fields["cross_attention"]
    if cross.written and cross.value is not None and not state.split and not cross.value.is_none:
        message = "only the decoder of an encoder-decoder has cross-attention"
        reader.problem(cross.where, _at(stack, block, "cross_attention"), message, ["write `encoder: {}` and `decoder: {}`"])


def _uninstalled(fields: Fields, path: str, reader: Reader) -> bool:
    """Whether a default in force names a component that is not installed; each is noted."""
    lost = [name for name, setting in fields.items() if setting.value is BAD]
    for name in lost:
        lines = [str(broken) for broken in reader.registry.broken]
        at = f"{path}.{name}" if path else name
        reader.problem(NOWHERE, at, f"its default '{FIELDS[name].default}' is not installed; write another", lines)
    return bool(lost)


def _heads_problem(dim: int, heads: Setting, dim_where: Where, path: str, reader: Reader) -> None:
    close = sorted((n for n in _divisors(dim)), key=lambda n: (abs(n - heads.value), n))[:4]
    where = heads.where if heads.where != NOWHERE else dim_where
    message = f"heads {heads.value} does not divide dim {dim} ({dim}/{heads.value} = {dim / heads.value:.2f})"
    lines = [f"heads that do: {', '.join(map(str, sorted(close)))}; or give `head_dim`"]
    reader.problem(where, path, message, lines)


def _divisors(number: int) -> Iterator[int]:
    for n in range(1, math.isqrt(number) + 1):
        if number % n == 0:
            yield from {n, number // n}


def _crosses(stack: str, fields: Fields) -> bool:
    cross = fields["cross_attention"].value or fields["attention"].value
    return stack == DECODER and not cross.is_none


def _check_model(state: State, reader: Reader) -> None:
    tie, vocab = state.model["tie_embeddings"], state.model["vocab"]
    if tie.value and vocab.value is None and tie.written:
        reader.problem(tie.where, "tie_embeddings", "there is no table to tie: write `vocab`")


def _require(fields: Fields, name: str, path: str, reader: Reader) -> None:
    if fields[name].value is MISSING:
        reader.problem(NOWHERE, f"{path}.{name}" if path else name, "must be written; it has no default")


def _components(state: State) -> Iterator[tuple[str, Chosen]]:
    """Every component that the model will build, with its path."""
    for name, setting in state.model.items():
        if isinstance(setting.value, Chosen):
            yield name, setting.value
    for stack in state.real_stacks:
        for name, setting in state.stacks[stack].items():
            if isinstance(setting.value, Chosen):
                yield _at(stack, "", name), setting.value
        for (this, block), fields in state.cells.items():
            if this == stack and in_use(state, stack, block):
                yield from ((_at(stack, block, n), s.value) for n, s in fields.items() if isinstance(s.value, Chosen))


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

