"""The resolved blueprint: every field with its value in force, as plain data that loads again and means the same."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from explorer.blueprint.fields import DECODER, MISSING, READ_BY_STACK
from explorer.blueprint.layers import written_layers
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, plain_value
from explorer.blueprint.resolve import NORMS_AT_THE_END, effective_head_dim
from explorer.blueprint.state import Fields, Setting, State

FOLLOWERS = frozenset({"head_dim", "cross_attention"})  # block fields that follow another where they are null


def resolved(state: State) -> dict[str, Any]:
    """All fields of the model, its stacks and blocks; named blocks show where they differ from the unnamed one.

    A field that must be written and is not, is left out.
    """
    result = _shown(state.model)
    if not state.split:
        result |= _stack(state, "")
        if len(state.blocks) > 1:
            result["blocks"] = _blocks(state, "")
        return result
    if len(state.blocks) > 1:
        result["blocks"] = {name: {} for name in state.blocks[1:]}
    for stack in state.real_stacks:
        result[stack] = _stack(state, stack)
        if len(state.blocks) > 1:
            result[stack]["blocks"] = _blocks(state, stack)
    return result


def form(state: State) -> tuple[Hashable, ...]:
    """What makes two rows one: equal where all fields in force are. Fields that no layer uses are left out."""
    stacks = []
    for stack in state.real_stacks:
        names = sorted(state.blocks)
        blocks = tuple((name, *_texts(_block_form(state, stack, name))) for name in names)
        stacks.append((stack, *_texts(stack_in_force(state, stack)), blocks))
    return (*_texts(state.model), *stacks)


def _texts(fields: Fields) -> tuple[str, ...]:
    return tuple(setting.text for setting in fields.values())


def _block_form(state: State, stack: str, name: str) -> Fields:
    fields = in_force(state, stack, name)
    if state.in_use(stack, name):
        return fields
    return {key: setting for key, setting in fields.items() if key in READ_BY_STACK}


def _stack(state: State, stack: str) -> dict[str, Any]:
    return _shown(stack_in_force(state, stack)) | _shown(in_force(state, stack, UNNAMED))


def _blocks(state: State, stack: str) -> dict[str, Any]:
    base = _shown(in_force(state, stack, UNNAMED))
    blocks = {name: _shown(in_force(state, stack, name)) for name in state.blocks[1:]}
    return {name: {k: v for k, v in block.items() if k not in base or v != base[k]} for name, block in blocks.items()}


def stack_in_force(state: State, stack: str) -> Fields:
    """The fields of a stack, its final norm settled; without `layers` where that is not written."""
    fields = dict(state.stacks[stack])
    base, value = state.cells[stack, UNNAMED], fields["final_norm"].value
    if value is True or (value == "auto" and base["placement"].value in NORMS_AT_THE_END):
        fields["final_norm"] = base["norm"]
    elif value == "auto":
        fields["final_norm"] = _NO_NORM
    if not fields["layers"].written:
        del fields["layers"]  # writing it would turn a block into a model
    return fields


_NO_NORM = Setting("none")


def in_force(state: State, stack: str, block: str) -> Fields:
    """The fields of a block, those that follow another where they are null with the value they have from it."""
    fields = dict(state.cells[stack, block])
    if stack != DECODER:
        del fields["cross_attention"]
    elif fields["cross_attention"].value is None:
        fields["cross_attention"] = fields["attention"]
    dim, heads, width = state.model["dim"].value, fields["heads"].value, fields["head_dim"].value
    if width is None and isinstance(dim, int) and isinstance(heads, int) and dim % heads == 0:
        fields["head_dim"] = _width(effective_head_dim(None, heads, dim))
    return fields


@lru_cache(maxsize=256)
def _width(head_dim: int) -> Setting:
    return Setting(head_dim)


def _shown(fields: Fields) -> dict[str, Any]:
    return {
        name: written_layers(setting.value) if name == "layers" else plain_value(setting.value)
        for name, setting in fields.items()
        if setting.value is not MISSING and setting.value is not BAD
    }
