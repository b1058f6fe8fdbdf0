"""From written nodes to checked values: component names looked up, parameters checked against their constructor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from explorer.blueprint.choices import CORE_COMPONENTS, RECORDS
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, child, describe, node_of, plain
from explorer.errors import BlueprintError, Problem, Where, did_you_mean, hints
from explorer.registry.chosen import Chosen
from explorer.registry.parameters import Parameter, Shape
from explorer.registry.registry import Component, NameProblem, Registry


class _Bad:
    def __repr__(self) -> str:
        return "BAD"


BAD: Final = _Bad()  # what could not be read; its problem is noted


class Reader:
    """Reads values and gathers every problem it meets."""

    def __init__(self, registry: Registry):
        self.registry = registry
        self.problems: list[Problem] = []

    def problem(self, where: Where, path: str, message: str, lines: Iterable[str | None] = ()) -> _Bad:
        self.problems.append(Problem(where, path, message, hints(*lines)))
        return BAD

    def raise_problems(self) -> None:
        """Raises: BlueprintError with all problems so far, if there are any."""
        if self.problems:
            raise BlueprintError(self.problems)

    def find(self, kind: str, name: str) -> Component:
        """Raises: NameProblem."""
        core = CORE_COMPONENTS.get(kind)
        if core is None:
            return self.registry.find(kind, name)
        if name not in core:
            raise NameProblem(f"no {kind} is called {name!r}", hints(did_you_mean(name, core), f"it is one of: {', '.join(core)}"))
        return core[name]

    def has(self, kind: str, name: str) -> bool:
        core = CORE_COMPONENTS.get(kind)
        return name in core if core is not None else name in self.registry.names(kind)

    def value(self, shape: Shape, node: Node, path: str) -> Any:
        """The value of this shape that the node writes, or BAD."""
        scalar = node.value if isinstance(node, ScalarNode) else BAD
        if scalar is None:
            return self._null(shape, node, path)
        if shape.leaf is not None and scalar is not BAD and (shape.kind is None or shape.leaf_fault(scalar) is None):
            if shape.value is None or shape.leaf_fault(scalar) is None:
                return self._leaf(shape, node, path)
        if shape.kind is not None:
            return self.component(shape.kind, node, path)
        if shape.value is not None:
            return self._structured(shape, node, path)
        return self._leaf(shape, node, path)

    def component(self, kind: str, node: Node, path: str) -> Chosen | _Bad:
        """A component: a name, or a one-key mapping from the name to its parameters."""
        if kind in RECORDS:
            return self._record(kind, node, path)
        if isinstance(node, MappingNode):
            if len(node.entries) != 1:
                return self._not_one_key(kind, node, path)
            entry = node.entries[0]
            return self._with_params(kind, entry.key, entry.key_where, entry.value, path)
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return self._with_params(kind, node.value, node.where, None, path)
        names = f"{kind}s: {', '.join(self._names(kind))}"
        return self.problem(node.where, path, f"must name {_a(kind)}, not {describe(node)}", [names])

    def _names(self, kind: str) -> list[str]:
        return sorted(CORE_COMPONENTS[kind]) if kind in CORE_COMPONENTS else self.registry.names(kind)

    def _with_params(self, kind: str, name: str, where: Where, params: Node | None, path: str) -> Chosen | _Bad:
        try:
            component = self.find(kind, name)
        except NameProblem as error:
            short = f"write {name.partition(':')[0]}: {{...}}; `name:key=value` is for command line options"
            return self.problem(where, path, str(error), [*error.hints, short if "=" in name else None])
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
                self.unknown_parameter(component, entry, path)
                continue
            value = self.parameter(parameters[entry.key], entry.value, child(path, entry.key))
            if value is not BAD:
                chosen = chosen.with_param(entry.key, value, entry.value.where)
        return BAD if len(self.problems) > before else self._with_defaults(chosen)

    def _with_defaults(self, chosen: Chosen) -> Chosen:
        """The choice with nested components that the constructor names as defaults looked up."""
        params: dict[str, Any] = dict(chosen.params)
        for parameter in chosen.component.schema.parameters.values():
            named = parameter.shape.kind is not None and isinstance(parameter.default, str | dict)
            if named and parameter.name not in params and parameter.shape.leaf_fault(parameter.default):
                value = self.value(parameter.shape, node_of(parameter.default), parameter.name)
                if value is not BAD:
                    params[parameter.name] = value
        return Chosen(chosen.component, params, chosen.where, chosen.places)

    def parameter(self, parameter: Parameter, node: Node, path: str) -> Any:
        """One parameter's value; where null is allowed, `none` says the same."""
        none = parameter.shape.kind and parameter.shape.nullable and isinstance(node, ScalarNode) and node.value == "none"
        return None if none else self.value(parameter.shape, node, path)

    def unknown_parameter(self, component: Component, entry: Entry, path: str) -> None:
        kind, name = component.kind.name, component.name
        owner = kind if kind in RECORDS else f"{kind} '{name}'"
        lines = [did_you_mean(entry.key, component.schema.parameters), f"it has: {component.schema.text}"]
        self.problem(entry.key_where, child(path, entry.key), f"{owner} has no parameter '{entry.key}'", lines)

    def _null(self, shape: Shape, node: Node, path: str) -> Any:
        if shape.nullable:
            return None
        if shape.kind is not None and (shape.kind in RECORDS or self.has(shape.kind, "none")):
            name = ScalarNode("none", node.where)
            return self.component(shape.kind, name, path)
        return self.problem(node.where, path, f"must be {shape.text}, not null")

    def _structured(self, shape: Shape, node: Node, path: str) -> Any:
        assert shape.value is not None
        written = plain(node)
        try:
            shape.value.parse(written)
        except ValueError as error:
            return self.problem(node.where, path, str(error), [f"it takes {shape.text}"])
        return written

    def _leaf(self, shape: Shape, node: Node, path: str) -> Any:
        written = plain(node)
        try:
            return shape.read_leaf(written)
        except ValueError as error:
            return self.problem(node.where, path, f"{error}, not {describe(node)}", [_number_hint(node)])

    def _not_one_key(self, kind: str, node: MappingNode, path: str) -> _Bad:
        keys = {entry.key: entry.value for entry in node.entries}
        named = next((keys[key] for key in ("type", "name") if key in keys), None)
        name = named.value if isinstance(named, ScalarNode) else f"NAME of {_a(kind)}"
        rest = ", ".join(key for key in keys if key not in ("type", "name"))
        message = f"{_a(kind)} is a name or a mapping with that one key, not a mapping of {len(keys)} keys"
        return self.problem(node.where, path, message, [f"write {{{name}: {{{rest}: ...}}}}" if rest else f"write {name}"])


def _number_hint(node: Node) -> str | None:
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
    """A read value as JSON-able data, components in full."""
    if isinstance(value, Chosen):
        return value.settings() if value.component.kind.name in RECORDS else value.plain()
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return value
