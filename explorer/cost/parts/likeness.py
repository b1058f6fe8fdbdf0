"""Whether two layers compute the same: read off their modules, so that no component has to declare it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from explorer.assembly.wiring import Wiring

_PLAIN = (bool, int, float, str, bytes, range, Fraction, type(None))
# What nn.Module keeps for itself; parameters, buffers and children are compared by shape below, hooks by identity.
_TORCH_OWN = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def likeness(module: nn.Module) -> Hashable:
    """Equal for modules that cost the same on equal inputs: by classes, attributes, hooks and parameter shapes.

    An attribute, or a hook, that cannot be compared by value counts as itself: two layers that hold two such differ.
    """
    attributes = tuple((name, _value(value)) for name, value in vars(module).items() if name not in _TORCH_OWN)
    tensors = tuple((name, _value(t)) for name, t in [*module._parameters.items(), *module._buffers.items()])
    # Not `child and ...`: an empty container is a module too.
    children = tuple((name, None if child is None else likeness(child)) for name, child in module._modules.items())
    hooks = tuple(tuple(map(_value, vars(module)[name].values())) for name in _HOOKS)
    return type(module), attributes, tensors, children, hooks


def family(alike: Hashable) -> Hashable:
    """A likeness without its floating-point numbers, but for 0 and 1, with which code may leave something out.

    Modules of one family do the same as a rule: by depth only a factor differs, or an epsilon.
    """
    if not isinstance(alike, tuple):
        return alike
    if len(alike) == 2 and alike[0] is float:
        return float, alike[1] if alike[1] in (0.0, 1.0) else None
    return tuple(map(family, alike))


def _value(value: Any) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype, value.requires_grad
    if isinstance(value, Wiring):
        return value.names, value.cross  # every layer has its own slot in the cache
    if isinstance(value, tuple | list):
        return tuple(_value(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _value(item)) for key, item in value.items())
    if isinstance(value, nn.Module):
        return likeness(value)  # held unregistered: a position of the stack
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(_value(getattr(value, field.name)) for field in fields(value))
    return id(value)
