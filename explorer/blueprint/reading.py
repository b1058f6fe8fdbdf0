"""From written nodes to checked values: component names looked up, parameters checked against their constructor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args, get_origin

from explorer.blueprint.choices import CORE_COMPONENTS, RECORDS
from explorer.blueprint.owners import as_field, as_parameter
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, child, describe, node_of, plain
from explorer.errors import NOWHERE, BlueprintError, Problem, Where, did_you_mean, hints
from explorer.registry.chosen import Chosen
from explorer.registry.parameters import Parameter, Shape
from explorer.registry.registry import Component, NameProblem, Registry


class _Bad:
    def __repr__(self) -> str:
        return "BAD"


BAD: Final = _Bad()  # what could not be read; its problem is noted


class Reader:
    """Reads values and gathers every problem it meets.

    home: the place of problems that stand nowhere else. known: problems from before; at their places there is no other.
    most: after so many problems the rest is not read.
    """

    def __init__(
        self, registry: Registry, home: Where = NOWHERE, known: Iterable[Problem] = (), most: int | None = None
    ):
        self.registry = registry
        self.home = home
        self._most = most
        self.problems: list[Problem] = list(known)
        self._defaults: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._spoilt = {problem.where for problem in self.problems if problem.where.line is not None}

    def afresh(self) -> Reader:
        """A reader without problems."""
        return Reader(self.registry, self.home)

    def problem(self, where: Where, path: str, message: str, lines: Iterable[str | None] = ()) -> _Bad:
        if where not in self._spoilt:
            place = self.home if where == NOWHERE else where
            self.problems.append(Problem(place, path, message, hints(*dict.fromkeys(lines))))
        if len(self.problems) == self._most:
            message = f"{self._most} problems up to here; the rest is not read"
            raise BlueprintError([*in_order(self.problems), Problem(self.home, "", message)])
        return BAD

    def adopt(self, problems: Iterable[Problem]) -> None:
        """Note what another reader found."""
        for problem in problems:
            self.problem(problem.where, problem.path, problem.message, problem.hints)

    def raise_problems(self) -> None:
        """Raises: BlueprintError with all problems so far, if there are any, those of a file in the order of lines."""
        if self.problems:
            raise BlueprintError(in_order(self.problems))

    def find(self, kind: str, name: str) -> Component:
        """Raises: NameProblem."""
        core = CORE_COMPONENTS.get(kind)
        if core is None:
            return self.registry.find(kind, name)
        if name not in core:
            lines = hints(did_you_mean(name, core), f"it is one of: {', '.join(core)}")
            raise NameProblem(f"no {kind} is called {name!r}", lines)
        return core[name]

    def components(self, kind: str) -> tuple[Component, ...]:
        """All components of a kind, of plugins or of the core."""
        core = CORE_COMPONENTS.get(kind)
        return tuple(core.values()) if core is not None else self.registry.components(kind)

    def has(self, kind: str, name: str) -> bool:
        return any(component.name == name for component in self.components(kind))

    def value(self, shape: Shape, node: Node, path: str) -> Any:
        """The value of this shape that the node writes, or BAD."""
        scalar = node.value if isinstance(node, ScalarNode) else BAD
        if scalar is None:
            return self._null(shape, node, path)
        structured = shape.kind is not None or shape.value is not None
        if not structured or (shape.leaf is not None and scalar is not BAD and _is_leaf(shape, scalar)):
            return self._leaf(shape, node, path)
        if shape.kind is not None:
            return self.component(shape.kind, node, path, shape.leaf)
        return self._structured(shape, node, path)

    def component(self, kind: str, node: Node, path: str, leaf: Any = None) -> Chosen | _Bad:
        """A component: a name, or a one-key mapping from the name to its parameters. ``leaf``: what else may stand."""
        if kind in RECORDS:
            return self._record(kind, node, path)
        if isinstance(node, MappingNode):
            if len(node.entries) != 1:
                return self._not_one_key(kind, node, path)
            entry = node.entries[0]
            return self._with_params(kind, entry.key, entry.key_where, entry.value, path)
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return self._with_params(kind, node.value, node.where, None, path)
        return self._no_name(kind, node, path, leaf)

    def _no_name(self, kind: str, node: Node, path: str, leaf: Any = None) -> _Bad:
        names = f"{kind}s: {', '.join(sorted({c.name for c in self.components(kind)}))}"
        off = isinstance(node, ScalarNode) and node.value is False and self.has(kind, "none")
        besides = f" or be {Shape(leaf=leaf).text}" if leaf is not None else ""
        message = f"must name {_a(kind)}{besides}, not {describe(node)}"
        return self.problem(node.where, path, message, ["write none where there shall be none" if off else None, names])

    def _with_params(self, kind: str, name: str, where: Where, params: Node | None, path: str) -> Chosen | _Bad:
        try:
            component = self.find(kind, name)
        except NameProblem as error:
            short = f"write {{{name.partition(':')[0]}: {{...}}}}; `name:key=value` is for command line options"
            lines = [short if "=" in name else None, self._misplaced(name, kind, path), *error.hints]
            return self.problem(where, path, str(error), lines)
        return self._parameters(component, where, params, path)

    def _record(self, kind: str, node: Node, path: str) -> Chosen | _Bad:
        component = CORE_COMPONENTS[kind][kind]
        null = isinstance(node, ScalarNode) and node.value in (None, "none")
        return self._parameters(component, node.where, None if null else node, path)

    def _parameters(self, component: Component, where: Where, node: Node | None, path: str) -> Chosen | _Bad:
        parameters = component.schema.parameters
        if node is None or (isinstance(node, ScalarNode) and node.value is None):
            return self._with_defaults(Chosen(component, {}, where))
        if not isinstance(node, MappingNode):
            takes = f"it takes: {component.schema.text}"
            return self.problem(node.where, path, f"parameters are a mapping, not {describe(node)}", [takes])
        before = len(self.problems)
        chosen = Chosen(component, {}, where)
        for entry in node.entries:
            if entry.key not in parameters:
                self._unknown_parameter(component, entry, path)
                continue
            value = self.parameter(parameters[entry.key], entry.value, child(path, entry.key))
            if value is not BAD:
                chosen = chosen.with_param(entry.key, value, entry.value.where)
        return BAD if len(self.problems) > before else self._with_defaults(chosen)

    def _with_defaults(self, chosen: Chosen) -> Chosen:
        """The choice with every default written out: what is equal in force is then equal."""
        component = chosen.component
        key = component.kind.name, component.package, component.name
        if key not in self._defaults:
            before = len(self.problems)
            defaults = dict(self._read_defaults(chosen))
            if len(self.problems) > before:  # a component that is not installed: told at every place
                return Chosen(component, {**defaults, **chosen.params}, chosen.where, chosen.places)
            self._defaults[key] = defaults
        return Chosen(component, {**self._defaults[key], **chosen.params}, chosen.where, chosen.places)

    def _read_defaults(self, chosen: Chosen) -> Iterator[tuple[str, Any]]:
        for parameter in chosen.component.schema.parameters.values():
            if parameter.menu or parameter.required:
                continue
            node = node_of(parameter.default)
            value = self.value(parameter.shape, replace(node, where=chosen.where), parameter.name)
            if value is not BAD:
                yield parameter.name, value

    def parameter(self, parameter: Parameter, node: Node, path: str) -> Any:
        """One parameter's value; where null is allowed, `none` says the same."""
        nullable = parameter.shape.kind is not None and parameter.shape.nullable
        none = nullable and isinstance(node, ScalarNode) and node.value == "none"
        return None if none else self.value(parameter.shape, node, path)

    def _unknown_parameter(self, component: Component, entry: Entry, path: str) -> None:
        kind, name = component.kind.name, component.name
        owner = kind if kind in RECORDS else f"{kind} '{name}'"
        lines = [
            did_you_mean(entry.key, component.schema.parameters),
            self._misplaced(entry.key, kind, path),
            f"it has: {component.schema.text}",
        ]
        self.problem(entry.key_where, child(path, entry.key), f"{owner} has no parameter '{entry.key}'", lines)

    def _misplaced(self, name: str, kind: str, path: str) -> str | None:
        """Where a name belongs that is written at or below the path of a component."""
        return as_field(name, path) or as_parameter(name, self.components(kind))

    def _null(self, shape: Shape, node: Node, path: str) -> Any:
        if shape.nullable:
            return None
        if offers_none(shape.leaf):
            return self._leaf(shape, ScalarNode("none", node.where), path)
        if shape.kind is not None and (shape.kind in RECORDS or self.has(shape.kind, "none")):
            return self.component(shape.kind, ScalarNode("none", node.where), path)
        if shape.kind is not None:
            return self._no_name(shape.kind, node, path, shape.leaf)
        return self.problem(node.where, path, f"must be {shape.text}, not null")

    def _structured(self, shape: Shape, node: Node, path: str) -> Any:
        assert shape.value is not None
        written = plain(node)
        try:
            shape.value.parse(written)
        except ValueError as error:
            lines = [number_hint(node), f"it takes {shape.text}"]
            return self.problem(node.where, path, str(error), lines)
        return written

    def _leaf(self, shape: Shape, node: Node, path: str) -> Any:
        written = plain(node)
        try:
            value = shape.read_leaf(written)
        except ValueError as error:
            lines = [number_hint(node), _null_hint(shape, node), _choice_hint(shape, node)]
            return self.problem(node.where, path, f"{error}, not {describe(node)}", lines)
        if isinstance(value, bool) is not isinstance(written, bool):  # to Python, and pydantic, 1 is True
            return self.problem(node.where, path, f"must be {shape.text}, not {describe(node)}")
        return value

    def _not_one_key(self, kind: str, node: MappingNode, path: str) -> _Bad:
        keys = {entry.key: entry.value for entry in node.entries}
        named = next((keys[key] for key in ("type", "name") if key in keys), None)
        name = named.value if isinstance(named, ScalarNode) else next((k for k in keys if self.has(kind, k)), "NAME")
        rest = [key for key in keys if key not in ("type", "name", name)]
        fields = [as_field(key, path) for key in rest]
        params = ", ".join(f"{key}: ..." for key, field in zip(rest, fields, strict=True) if field is None)
        message = f"{_a(kind)} is a name or a mapping with that one key, not a mapping of {len(keys)} keys"
        return self.problem(node.where, path, message, [f"write {{{name}: {{{params}}}}}", *fields])


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Distinct problems, those of one file in the order of lines."""
    files = list(dict.fromkeys(problem.where.file for problem in problems))
    return sorted(distinct(problems), key=lambda problem: _order(problem.where, files))


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """One problem for each place and message: what a file writes once may be wrong in many blocks."""
    found: dict[tuple[object, ...], Problem] = {}
    for problem in problems:
        place = problem.where if problem.where.line is not None else (problem.where, problem.path)
        found.setdefault((place, problem.message), problem)
    return list(found.values())


def _order(where: Where, files: list[str | None]) -> tuple[int, int, int]:
    return files.index(where.file), where.line or 0, where.column or 0


def _is_leaf(shape: Shape, scalar: Any) -> bool:
    return shape.leaf_fault(scalar) is None


def _choices(leaf: Any) -> list[Any]:
    """The options of every Literal in an annotation."""
    if get_origin(leaf) is Literal:
        return list(get_args(leaf))
    return [option for member in get_args(leaf) for option in _choices(member)]


def offers_none(leaf: Any) -> bool:
    """Whether `none` is one of the words that an annotation lists, so that null says the same."""
    return "none" in _choices(leaf)


def _choice_hint(shape: Shape, node: Node) -> str | None:
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return None
    return did_you_mean(node.value, [option for option in _choices(shape.leaf) if isinstance(option, str)])


def _null_hint(shape: Shape, node: Node) -> str | None:
    none = isinstance(node, ScalarNode) and node.value == "none"
    return "write null" if none and shape.nullable else None


def number_hint(node: Node) -> str | None:
    """What to write for an integer that is written as a float or as text."""
    if not isinstance(node, ScalarNode):
        return None
    if isinstance(node.value, float) and node.value.is_integer() and abs(node.value) < 2**53:
        return f"write {int(node.value)}"
    if isinstance(node.value, str) and node.quoted:
        return "without quotes it is a number" if _is_number(node.value) else None
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def plain_value(value: Any) -> Any:
    """A read value as JSON-able data with every parameter; a component that has none is its name."""
    if isinstance(value, Chosen):
        record = value.component.kind.name in RECORDS
        return _shortened(value.settings()) if record else _shortened({"": value.plain()})[""]
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return value


def _shortened(plain: Any) -> Any:
    if not isinstance(plain, Mapping):
        return plain
    return {key: next(iter(item)) if _is_bare(item) else _shortened(item) for key, item in plain.items()}


def _is_bare(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value.values())) == {}
