"""Where a name belongs that is written where it does not: a field inside a component, a parameter among the fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from explorer.blueprint.fields import FIELDS, HEADER_FIELDS, STUDY_FIELDS
from explorer.errors import PluginError
from explorer.registry.registry import Component


def readable(components: Iterable[Component]) -> Iterator[Component]:
    """Those whose signature can be read: a broken component matters only where it is chosen."""
    for component in components:
        try:
            _ = component.schema
        except PluginError:
            continue
        yield component


def as_field(name: str, path: str) -> str | None:
    """Where ``name`` is a field and stands below another field: ``heads`` in ``attention: {mha: {heads: 8}}``."""
    if name in (*STUDY_FIELDS, *HEADER_FIELDS):
        return f"'{name}' stands at the top of the file"
    field = FIELDS.get(name)
    if field is None:
        return None
    beside = next((step for step in reversed(path.split(".")) if step in FIELDS and step != name), "the other fields")
    return f"'{name}' is a field of the {field.level}: write it beside {beside}"


def as_parameter(name: str, components: Iterable[Component], path: str = "") -> str | None:
    """Where ``name`` is a parameter or a component of these: ``kv_heads`` is one of attention 'gqa'.

    path: the field that the components stand in, where the name is written among the fields.
    """
    found = tuple(readable(components))
    owners = [component for component in found if name in component.schema.parameters]
    if owners:
        names = " and ".join(f"'{component.name}'" for component in owners)
        example = f"`{path}.{name}: ...`" if path else f"{{{owners[0].name}: {{{name}: ...}}}}"
        return f"'{name}' is a parameter of {owners[0].kind.name} {names}: write {example}"
    same = next((component for component in found if component.name == name), None)
    return f"'{name}' is of kind {same.kind.name}: write `{path}: {name}`" if same and path else None
