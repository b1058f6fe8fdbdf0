"""The resolved blueprint: every field with its value in force, as plain data that loads again and means the same."""

from __future__ import annotations

from typing import Any

from explorer.blueprint.fields import DECODER, MISSING
from explorer.blueprint.layers import written_layers
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, plain_value
from explorer.blueprint.resolve import NORMS_AT_THE_END, effective_head_dim
from explorer.blueprint.state import Fields, State
from explorer.registry.chosen import Chosen


def resolved(state: State) -> dict[str, Any]:
    """All fields of the model, its stacks and blocks; named blocks show where they differ from the unnamed one."""
    result = {name: _plain(setting.value) for name, setting in state.model.items()}
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


def _stack(state: State, stack: str) -> dict[str, Any]:
    fields = {name: setting.value for name, setting in state.stacks[stack].items()}
    base = state.cells[stack, UNNAMED]
    shown = {
        "layers": written_layers(fields["layers"]),
        "residual": _plain(fields["residual"]),
        "final_norm": _plain(_final_norm(fields["final_norm"], base)),
    }
    if not state.stacks[stack]["layers"].written:
        del shown["layers"]  # writing it would turn a block into a model
    return shown | _block(state, stack, base)


def _final_norm(value: Any, base: Fields) -> Any:
    if value == "auto":
        return base["norm"].value if base["placement"].value in NORMS_AT_THE_END else "none"
    return base["norm"].value if value is True else value


def _block(state: State, stack: str, fields: Fields) -> dict[str, Any]:
    values = {name: setting.value for name, setting in fields.items()}
    if stack == DECODER:
        values["cross_attention"] = values["cross_attention"] or values["attention"]
    else:
        del values["cross_attention"]
    dim, heads = state.model["dim"].value, values["heads"]
    if dim is not MISSING and heads is not MISSING and (values["head_dim"] or dim % heads == 0):
        values["head_dim"] = effective_head_dim(values["head_dim"], heads, dim)
    return {name: _plain(value) for name, value in values.items()}


def _blocks(state: State, stack: str) -> dict[str, Any]:
    base = _block(state, stack, state.cells[stack, UNNAMED])
    shown = {name: _block(state, stack, state.cells[stack, name]) for name in state.blocks[1:]}
    return {name: {key: value for key, value in block.items() if value != base[key]} for name, block in shown.items()}


def _plain(value: Any) -> Any:
    """Plain data in the shortest full form: a component without parameters is its name."""
    if value is MISSING or value is BAD:
        return None
    if isinstance(value, Chosen):
        plain = plain_value(value)
        return value.name if plain == {value.name: {}} else _shortened(plain)
    return plain_value(value)


def _shortened(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    return {key: next(iter(v)) if _is_bare(v) else _shortened(v) for key, v in plain.items()}


def _is_bare(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value.values())) == {}
