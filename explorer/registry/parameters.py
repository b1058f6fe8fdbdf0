"""A constructor's signature is its schema: left of ``*`` the menu, right of ``*`` the parameters of a blueprint."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Union

from explorer.registry.kinds import Kind
from explorer.registry.makers import KIND_OF
from explorer.registry.values import Value

REQUIRED: Any = inspect.Parameter.empty


class SignatureError(Exception):
    """A constructor's signature cannot be a schema; the message names the parameter."""


@dataclass(frozen=True)
class Shape:
    """What may be written for one parameter: a component, a structured value, a leaf, null."""

    kind: str | None = None
    value: type[Value] | None = None
    leaf: Any = None
    nullable: bool = False

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter

        return TypeAdapter(self.leaf, config=ConfigDict(strict=True, allow_inf_nan=False))

    def read_leaf(self, written: Any) -> Any:
        """The leaf that is written, an int given for a float turned into one.

        Raises: ValueError with one sentence.
        """
        from pydantic import ValidationError

        if self.leaf is None or (isinstance(written, float) and not math.isfinite(written)):
            raise ValueError(f"must be {self.text}")
        try:
            return self._adapter.validate_python(written)
        except ValidationError:
            raise ValueError(f"must be {self.text}") from None

    def leaf_fault(self, written: Any) -> str | None:
        """Why ``written`` is not a valid leaf (one sentence), or None where it is one."""
        try:
            self.read_leaf(written)
        except ValueError as error:
            return str(error)
        return None

    @property
    def text(self) -> str:
        """The type in words: ``int >= 1 or null``."""
        parts = [self.kind and f"{_article(self.kind)} {self.kind}", self.value and self.value.text]
        parts += [_leaf_text(member) for member in _members(self.leaf)] if self.leaf is not None else []
        return " or ".join(part for part in [*parts, "null" if self.nullable else None] if part)

    def json_schema(self, component: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """JSON Schema; ``component(kind)`` gives the schema of a component."""
        options = [component(self.kind)] if self.kind else []
        options += [self.value.schema()] if self.value else []
        options += [self._adapter.json_schema()] if self.leaf is not None else []
        options += [{"type": "null"}] if self.nullable else []
        return options[0] if len(options) == 1 else {"anyOf": options}


@dataclass(frozen=True)
class Parameter:
    """One parameter that a blueprint may write. ``menu``: it is the block's value where it is not written."""

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


def _signature(constructor: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isclass(constructor):
        owner = next(base for base in constructor.__mro__ if "__init__" in vars(base))
        if owner.__module__ == "torch.nn.modules.module":
            return []  # nn.Module takes *args only to complain about them
    try:
        return list(inspect.signature(constructor).parameters.values())
    except (TypeError, ValueError) as error:
        raise SignatureError(f"its signature cannot be read: {error}") from error


def read_shape(annotation: Any) -> Shape:
    """What an annotation allows: makers, Value classes, null, and the rest as one leaf."""
    members = _members(annotation)
    kinds = [KIND_OF[member] for member in members if _hashable(member) and member in KIND_OF]
    values = [member for member in members if inspect.isclass(member) and issubclass(member, Value)]
    rest = [m for m in members if m is not type(None) and m not in values and not (_hashable(m) and m in KIND_OF)]
    if len(kinds) > 1 or len(values) > 1:
        raise SignatureError("a union may hold one component and one structured value")
    shape = Shape(
        kind=kinds[0] if kinds else None,
        value=values[0] if values else None,
        leaf=Union[tuple(rest)] if rest else None,  # noqa: UP007 - built at run time
        nullable=type(None) in members,
    )
    if shape.leaf is not None:
        _ = shape._adapter  # an annotation pydantic cannot read must fail here, with the parameter's name
    return shape


def _read_pick(parameter: inspect.Parameter, kind: Kind) -> str:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY):
        raise SignatureError(f"parameter '{parameter}': *args and **kwargs would hide typing errors; name parameters")
    if parameter.name not in kind.menu:
        menu = ", ".join(kind.menu) or "nothing"
        raise SignatureError(
            f"parameter '{parameter.name}' stands left of * but a block gives {_article(kind.name)} {kind.name} "
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
        raise SignatureError(f"parameter '{name}': its annotation cannot be read: {error}") from error
    fault = _default_fault(shape, parameter.default)
    if fault:
        raise SignatureError(f"parameter '{name}': its default {parameter.default!r} {fault}")
    return Parameter(name, shape, parameter.default)


def _default_fault(shape: Shape, default: Any) -> str | None:
    if default is REQUIRED or (default is None and shape.nullable):
        return None
    if shape.value is not None and shape.leaf is None and not shape.kind:
        try:
            shape.value.parse(default)
        except ValueError as error:
            return str(error)
        return None
    if shape.kind is not None and isinstance(default, str | dict):
        return None  # a component's name or one-key mapping, looked up when it is needed
    return shape.leaf_fault(default)


def _evaluated(annotation: Any, constructor: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    function = constructor.__init__ if inspect.isclass(constructor) else inspect.unwrap(constructor)  # type: ignore[misc]
    return eval(annotation, getattr(function, "__globals__", {}))


def _members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for argument in typing.get_args(annotation) for member in _members(argument))
    return (type(None),) if annotation is None else (annotation,)


def _hashable(member: Any) -> bool:
    try:
        hash(member)
    except TypeError:
        return False
    return True


_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _leaf_text(member: Any) -> str:
    origin = typing.get_origin(member)
    if origin is Annotated:
        base, *extras = typing.get_args(member)
        bounds = [f"{sign} {getattr(e, name):g}" for e in extras for name, sign in _BOUNDS.items() if hasattr(e, name)]
        return " ".join([_leaf_text(base), " and ".join(bounds)]).strip()
    if origin is Literal:
        return " or ".join(written_text(option) for option in typing.get_args(member))
    return "true or false" if member is bool else getattr(member, "__name__", str(member))


def written_text(value: Any) -> str:
    """A plain value as a blueprint writes it on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(written_text(item) for item in value) + "]"
    return str(value)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
