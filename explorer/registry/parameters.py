"""A constructor's signature is its schema: left of ``*`` the menu, right of ``*`` the parameters of a blueprint."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from explorer.registry.kinds import Kind
from explorer.registry.shapes import Shape as Shape
from explorer.registry.shapes import SignatureError as SignatureError
from explorer.registry.shapes import article
from explorer.registry.shapes import read_shape as read_shape
from explorer.registry.values import Value
from explorer.registry.words import written_text as written_text

REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter that a blueprint may write. ``menu``: it is the block's value where it is not written.

    default: as a blueprint writes it; REQUIRED where there is none.
    """

    name: str
    shape: Shape
    default: Any = REQUIRED
    menu: bool = False

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def type_text(self) -> str:
        return self.shape.text

    @property
    def default_text(self) -> str | None:
        if self.menu:
            return "the block's"
        return None if self.required else written_text(self.default)

    @property
    def text(self) -> str:
        """``eps (float > 0, default 1e-06)``."""
        return f"{self.name} ({self.type_text}, {'required' if self.required else f'default {self.default_text}'})"


@dataclass(frozen=True)
class Schema:
    """picks: menu names the constructor takes. parameters: what a blueprint may write."""

    picks: tuple[str, ...]
    parameters: Mapping[str, Parameter]

    @property
    def text(self) -> str:
        return ", ".join(parameter.text for parameter in self.parameters.values()) or "no parameters"


def read_schema(constructor: Callable[..., Any], kind: Kind) -> Schema:
    """The schema of a constructor of this kind.

    Raises: SignatureError, naming the parameter at fault.
    """
    picks: list[str] = []
    parameters: dict[str, Parameter] = {}
    for parameter in _signature(constructor):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            parameters[parameter.name] = _read_parameter(parameter, constructor)
        else:
            picks.append(_read_pick(parameter, kind))
    for name, annotation in kind.written.items():
        if name in picks:
            parameters[name] = Parameter(name, read_shape(annotation), default=None, menu=True)
    return Schema(tuple(picks), types.MappingProxyType(parameters))


def without_partials(constructor: Callable[..., Any]) -> Callable[..., Any]:
    """The class or function that ``functools.partial`` objects give arguments to."""
    while isinstance(constructor, functools.partial):
        constructor = constructor.func
    return constructor


def _signature(constructor: Callable[..., Any]) -> list[inspect.Parameter]:
    inner = without_partials(constructor)
    if inspect.isclass(inner):
        owner = next(base for base in inner.__mro__ if "__init__" in vars(base))
        if owner.__module__ == "torch.nn.modules.module":
            return []  # nn.Module takes *args only to complain about them
    try:
        return list(inspect.signature(constructor).parameters.values())
    except Exception as error:
        raise SignatureError(f"its signature cannot be read: {error}") from error


def _read_pick(parameter: inspect.Parameter, kind: Kind) -> str:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY):
        stars = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise SignatureError(f"parameter '{stars}{parameter.name}' would hide typing errors; name every parameter")
    if parameter.name not in kind.menu:
        menu = ", ".join(kind.menu) or "nothing"
        raise SignatureError(
            f"parameter '{parameter.name}' stands left of * but a block gives {article(kind.name)} {kind.name} "
            f"only: {menu}; move it right of *"
        )
    return parameter.name


def _read_parameter(parameter: inspect.Parameter, constructor: Callable[..., Any]) -> Parameter:
    name = parameter.name
    if parameter.annotation is inspect.Parameter.empty:
        raise SignatureError(f"parameter '{name}' has no annotation")
    try:
        shape = read_shape(_evaluated(parameter.annotation, constructor))
    except SignatureError as error:
        raise SignatureError(f"parameter '{name}': {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SignatureError(f"parameter '{name}': its annotation cannot be read: {reason}") from error
    try:
        return Parameter(name, shape, _read_default(shape, parameter.default))
    except ValueError as error:
        raise SignatureError(f"parameter '{name}': its default {parameter.default!r} {error}") from error


def _read_default(shape: Shape, default: Any) -> Any:
    """The default as a blueprint writes it.

    Raises: ValueError with the rest of a sentence on the default.
    """
    if default is REQUIRED or (default is None and shape.nullable):
        return default
    if shape.leaf is not None and shape.leaf_fault(default) is None:
        return shape.read_leaf(default)
    if shape.kind is not None and isinstance(default, str | dict):
        return default  # a component's name or one-key mapping, looked up when it is needed
    if shape.value is not None and not isinstance(default, Value):
        shape.read_value(default)
        return default
    raise ValueError(f"must be {shape.text}, as a blueprint writes it")


def _evaluated(annotation: Any, constructor: Callable[..., Any]) -> Any:
    """The annotation with text in it (``from __future__ import annotations``, ``Optional["Norm"]``) evaluated."""
    inner = without_partials(constructor)
    scope = vars(inner) if inspect.isclass(inner) else {}
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    names = _function(inner).__globals__
    return typing.get_type_hints(holder, names, dict(scope), include_extras=True)["it"]


def _function(constructor: Callable[..., Any]) -> Any:
    """The function that holds the annotations of a class, a wrapped function or a callable object."""
    if inspect.isclass(constructor):
        own = constructor.__init__ is not object.__init__
        return inspect.unwrap(constructor.__init__ if own else constructor.__new__)
    return inspect.unwrap(constructor if inspect.isroutine(constructor) else type(constructor).__call__)
