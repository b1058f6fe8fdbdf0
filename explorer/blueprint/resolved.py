"""The resolved blueprint: every field with its value in force, as plain data that loads again and means the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from explorer.blueprint.fields import BLOCK, DECODER, FIELDS, MISSING, MODEL
from explorer.blueprint.layers import written_layers
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, plain_value
from explorer.blueprint.resolve import NORMS_AT_THE_END, effective_head_dim
from explorer.blueprint.state import Fields, Setting, State


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
    return (*holders(state), *(tuple(map(text_of, settings_in_force(state, name))) for name in FIELDS))


def holders(state: State) -> tuple[Hashable, ...]:
    """The stacks and blocks that hold fields, whatever the order in which blocks were defined."""
    return state.real_stacks, tuple(sorted(state.blocks))


def settings_in_force(state: State, name: str) -> tuple[Setting | None, ...]:
    """One field as each of its holders has it: the model, its stacks, or their blocks; None where nothing reads it.

    Of other fields it reads those that ``depends_on`` names, and `layers` for what blocks are in use.
    """
    level = FIELDS[name].level
    if level == MODEL:
        return (state.model[name],)
    if level != BLOCK:
        return tuple(_stack_setting(state, stack, name) for stack in state.real_stacks)
    cells = ((stack, block) for stack in state.real_stacks for block in sorted(state.blocks))
    return tuple(_block_setting(state, *cell, name) if state.reads(*cell, name) else None for cell in cells)


def depends_on(name: str) -> frozenset[str]:
    """The fields from which a field has its value in force."""
    return frozenset({name, *(FOLLOWING[name].others if name in FOLLOWING else ())})


def text_of(setting: Setting | None) -> str | None:
    """The value as text, None where there is no setting."""
    return None if setting is None else setting.text


def _stack(state: State, stack: str) -> dict[str, Any]:
    return _shown(stack_in_force(state, stack)) | _shown(in_force(state, stack, UNNAMED))


def _blocks(state: State, stack: str) -> dict[str, Any]:
    base = _shown(in_force(state, stack, UNNAMED))
    blocks = {name: _shown(in_force(state, stack, name)) for name in state.blocks[1:]}
    return {name: {k: v for k, v in block.items() if k not in base or v != base[k]} for name, block in blocks.items()}


def stack_in_force(state: State, stack: str) -> Fields:
    """The fields of a stack, its final norm settled; without `layers` where that is not written."""
    fields = {name: _stack_setting(state, stack, name) for name in state.stacks[stack]}
    return {name: setting for name, setting in fields.items() if setting is not None}


def in_force(state: State, stack: str, block: str) -> Fields:
    """The fields of a block, those that follow another where they are null with the value they have from it."""
    fields = {name: _block_setting(state, stack, block, name) for name in state.cells[stack, block]}
    return {name: setting for name, setting in fields.items() if setting is not None}


def _stack_setting(state: State, stack: str, name: str) -> Setting | None:
    setting = state.stacks[stack][name]
    return FOLLOWING[name].settle(setting, state, stack, UNNAMED) if name in FOLLOWING else setting


def _block_setting(state: State, stack: str, block: str, name: str) -> Setting | None:
    setting = state.cells[stack, block][name]
    return FOLLOWING[name].settle(setting, state, stack, block) if name in FOLLOWING else setting


@dataclass(frozen=True)
class Following:
    """How a field has its value in force from others. ``settle(setting, state, stack, block)``; None: it has none."""

    others: frozenset[str]
    settle: Callable[[Setting, State, str, str], Setting | None]


def _layers(layers: Setting, state: State, stack: str, block: str) -> Setting | None:
    return layers if layers.written else None  # writing it would turn a block into a model


def _final_norm(written: Setting, state: State, stack: str, block: str) -> Setting:
    base = state.cells[stack, block]
    if written.value is True or (written.value == "auto" and base["placement"].value in NORMS_AT_THE_END):
        return base["norm"]
    return _NO_NORM if written.value == "auto" else written


_NO_NORM = Setting("none")


def _cross_attention(written: Setting, state: State, stack: str, block: str) -> Setting | None:
    if stack != DECODER:
        return None
    return state.cells[stack, block]["attention"] if written.value is None else written


def _head_dim(written: Setting, state: State, stack: str, block: str) -> Setting:
    dim, heads = state.model["dim"].value, state.cells[stack, block]["heads"].value
    if written.value is None and isinstance(dim, int) and isinstance(heads, int) and dim % heads == 0:
        return _width(effective_head_dim(None, heads, dim))
    return written


@lru_cache(maxsize=256)
def _width(head_dim: int) -> Setting:
    return Setting(head_dim)


FOLLOWING: Mapping[str, Following] = MappingProxyType(
    {
        "layers": Following(frozenset(), _layers),
        "final_norm": Following(frozenset({"norm", "placement"}), _final_norm),
        "cross_attention": Following(frozenset({"attention"}), _cross_attention),
        "head_dim": Following(frozenset({"dim", "heads"}), _head_dim),
    }
)
"""The fields that follow others where they are not written."""


def _shown(fields: Fields) -> dict[str, Any]:
    return {
        name: written_layers(setting.value) if name == "layers" else plain_value(setting.value)
        for name, setting in fields.items()
        if setting.value is not MISSING and setting.value is not BAD
    }
