"""Load a blueprint: a file with its bases, the options of the command line, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from explorer.blueprint.axes import Axis, check_axes, narrowed, read_axes, read_axis, with_axis
from explorer.blueprint.baseline import read_baseline
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.changes import flatten
from explorer.blueprint.fields import HEADER_FIELDS, STUDY_FIELDS
from explorer.blueprint.files import Source, chain, open_source
from explorer.blueprint.options import axis_entry, set_entry, workload_node
from explorer.blueprint.reading import Reader
from explorer.blueprint.requirements import check_requires
from explorer.blueprint.resolve import check
from explorer.blueprint.skips import read_skips
from explorer.blueprint.state import State, default_state
from explorer.blueprint.tree import Entry, Node, ScalarNode, describe
from explorer.blueprint.workload import Workload, read_workloads
from explorer.blueprint.writing import Writer, unreached_problem
from explorer.errors import UsageError, Where
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry

MOST_PROBLEMS = 100


def load(
    source: str | Path | Mapping[str, Any],
    *,
    registry: Registry | None = None,
    sets: Sequence[str] = (),
    axes: Sequence[str] = (),
    workloads: Sequence[str] = (),
) -> Blueprint:
    """The blueprint at a path, of a published name, from standard input ("-") or from a mapping.

    sets, axes, workloads: texts as after ``--set``, ``--axis``, ``--workload``. Workloads replace the blueprint's.

    Raises: BlueprintError with every problem found, UsageError for an option that is no ``KEY=VALUE``.
    """
    for name, texts in (("sets", sets), ("axes", axes), ("workloads", workloads)):
        if isinstance(texts, str):
            raise UsageError(f"{name} must be a list of texts: [{texts!r}]")
    top = open_source(source)
    sources = chain(top)
    where = top.mapping.where if top.is_file else Where(top.path)
    known = [problem for found in sources for problem in found.problems]
    reader = Reader(registry if registry is not None else load_registry(), where, known, MOST_PROBLEMS)
    state = _state(sources, sets, reader)
    for node in (e.value for source in sources for e in source.mapping.entries if e.key == "requires"):
        check_requires(node, reader)
    fields = {entry.key: entry.value for entry in top.mapping.entries if entry.key in (*STUDY_FIELDS, *HEADER_FIELDS)}
    name = _name(fields.get("name"), top, reader)
    study = _study(fields, state, axes, workloads, reader)
    if study["axes"]:
        _try_options(study["axes"], state, reader)
    else:
        check(state, reader)
    reader.raise_problems()
    return Blueprint(name, top.path, reader.registry, state, encoding=top.encoding, where=where, **study)


def _state(sources: Sequence[Source], sets: Sequence[str], reader: Reader) -> State:
    """The defaults after every file and every ``--set``, each a mapping of its own."""
    outside = (*STUDY_FIELDS, *HEADER_FIELDS)
    mappings = [[entry for entry in source.mapping.entries if entry.key not in outside] for source in sources]
    writer, state = Writer(reader), default_state(reader)
    for mapping in [*mappings, *([set_entry(text)] for text in sets)]:
        state, unreached = writer.apply(state, flatten(mapping, reader))
        for change in unreached:
            unreached_problem(change, state, reader)
    return state


def _try_options(axes: Sequence[Axis], state: State, reader: Reader) -> None:
    """Note values that cannot be read beside the other problems of the file. What rests here may not rest in a row."""
    writer = Writer(reader)
    for option in (option for axis in axes for option in axis.options):
        writer.apply(state, option.changes)


def _study(
    fields: Mapping[str, Node], state: State, axes: Sequence[str], workloads: Sequence[str], reader: Reader
) -> dict[str, Any]:
    explored = _axes(fields.get("explore"), axes, reader)
    match = fields.get("match")
    if match is not None and not (isinstance(match, ScalarNode) and match.value is None):
        message = "matching sizes to the baseline is not available in this version; remove it"
        reader.problem(match.where, "match", message)
    encoder = bool(state.split) or any(not change.path for axis in explored for change in axis.changes)
    return {
        "axes": explored,
        "skips": read_skips(fields.get("skip"), explored, state, reader),
        "baseline": read_baseline(fields.get("baseline"), explored, reader),
        "workloads": _workloads(fields.get("workloads"), workloads, encoder, reader),
    }


def _axes(node: Node | None, texts: Sequence[str], reader: Reader) -> tuple[Axis, ...]:
    explored = read_axes(node, reader) if node is not None else ()
    for text in texts:
        entry = axis_entry(text)
        axis = _from_option(entry, explored, reader)
        explored = with_axis(explored, axis) if axis else explored
    check_axes(explored, reader)
    return explored


def _from_option(entry: Entry, explored: Sequence[Axis], reader: Reader) -> Axis | None:
    """An axis of the command line: values of a path, or some of the named options that the blueprint has."""
    named = next((axis for axis in explored if axis.named and axis.name == entry.key), None)
    return narrowed(named, entry, reader, entry.key) if named else read_axis(entry, reader, entry.key)


def _workloads(node: Node | None, texts: Sequence[str], encoder: bool, reader: Reader) -> tuple[Workload, ...]:
    if texts:
        found = [w for text in texts for w in read_workloads(workload_node(text), reader, "workload", encoder)]
        return tuple(dict.fromkeys(found))
    return read_workloads(node, reader, encoder=encoder) if node is not None else (Workload(),)


def _name(node: Node | None, source: Source, reader: Reader) -> str:
    if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value:
        return node.value
    if node is not None and not (isinstance(node, ScalarNode) and node.value is None):
        reader.problem(node.where, "name", f"must be a text, not {describe(node)}")
    return Path(source.path).stem if source.is_file else "blueprint"
