"""Load a blueprint: a file with its bases, the options of the command line, all problems at once."""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from explorer.blueprint.axes import read_axes, read_axis, read_baseline, with_axis
from explorer.blueprint.axes import check_axes
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.changes import flatten
from explorer.blueprint.fields import HEADER_FIELDS, STUDY_FIELDS
from explorer.blueprint.options import axis_entry, set_entry, workload_node
from explorer.blueprint.reading import Reader
from explorer.blueprint.skips import read_skips
from explorer.blueprint.state import State, apply, default_state, unreached_problem
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode, child, describe, node_of
from explorer.blueprint.workload import Workload, read_workloads
from explorer.blueprint.yaml_source import parse, read_blueprint
from explorer.errors import NOWHERE, BlueprintError, Problem, Where
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry

SUFFIX = ".yaml"


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
    files = _Files()
    top, path, encoding = files.open(source)
    chain = files.chain(top, path)
    reader = Reader(registry or load_registry())
    state = _apply_files(chain, reader)
    for text in sets:
        state = _apply(state, [set_entry(text)], reader)
    fields = {entry.key: entry.value for entry in top.entries if entry.key in (*STUDY_FIELDS, *HEADER_FIELDS)}
    _check_requirements(chain, reader)
    blueprint = Blueprint(
        name=_name(fields.get("name"), path, reader),
        path=path,
        registry=reader.registry,
        state=state,
        encoding=encoding,
        **_study(fields, axes, workloads, reader),
    )
    reader.raise_problems()
    if not blueprint.axes:
        blueprint.plan()
    return blueprint


def _apply_files(chain: Sequence[MappingNode], reader: Reader) -> State:
    state = default_state(reader)
    for mapping in chain:
        entries = [entry for entry in mapping.entries if entry.key not in (*STUDY_FIELDS, *HEADER_FIELDS)]
        state = _apply(state, entries, reader)
    return state


def _apply(state: State, entries: Sequence[Entry], reader: Reader) -> State:
    state, unreached = apply(state, flatten(entries, reader), reader)
    for change in unreached:
        unreached_problem(change, state, reader)
    return state


def _study(fields: Mapping[str, Node], axes: Sequence[str], workloads: Sequence[str], reader: Reader) -> dict[str, Any]:
    explored = read_axes(fields["explore"], reader) if "explore" in fields else ()
    for text in axes:
        entry = axis_entry(text)
        axis = read_axis(entry, reader, entry.key)
        explored = with_axis(explored, axis) if axis else explored
    check_axes(explored, reader)
    _check_match(fields.get("match"), reader)
    return {
        "axes": explored,
        "skips": read_skips(fields.get("skip"), explored, reader),
        "baseline": read_baseline(fields.get("baseline"), explored, reader),
        "workloads": _workloads(fields.get("workloads"), workloads, reader),
    }


def _workloads(node: Node | None, texts: Sequence[str], reader: Reader) -> tuple[Workload, ...]:
    if texts:
        return tuple(w for text in texts for w in read_workloads(workload_node(text), reader, "workload"))
    return read_workloads(node, reader) if node is not None else (Workload(),)


def _check_match(node: Node | None, reader: Reader) -> None:
    if node is not None and not (isinstance(node, ScalarNode) and node.value is None):
        reader.problem(node.where, "match", "matching sizes to the baseline is not available in this version; remove it")


def _name(node: Node | None, path: str, reader: Reader) -> str:
    if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value:
        return node.value
    if node is not None and not (isinstance(node, ScalarNode) and node.value is None):
        reader.problem(node.where, "name", f"must be a text, not {describe(node)}")
    return Path(path).stem if path and not path.startswith("<") else "blueprint"


def _check_requirements(chain: Sequence[MappingNode], reader: Reader) -> None:
    for node in (entry.value for mapping in chain for entry in mapping.entries if entry.key == "requires"):
        if not isinstance(node, SequenceNode):
            reader.problem(node.where, "requires", f"must be a list such as [\"dist>=1.0\"], not {describe(node)}")
            continue
        for index, item in enumerate(node.items):
            fault = _requirement_fault(item)
            if fault:
                reader.problem(item.where, child("requires", index), fault)


def _requirement_fault(item: Node) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement

    text = item.value if isinstance(item, ScalarNode) else None
    if not isinstance(text, str):
        return f"must be a requirement such as \"dist>=1.0\", not {describe(item)}"
    try:
        requirement = Requirement(text)
        version = importlib.metadata.version(requirement.name)
    except InvalidRequirement as error:
        return f"{text!r} is no requirement: {error}"
    except importlib.metadata.PackageNotFoundError:
        return f"{text} is required but not installed; run `pip install \"{text}\"`"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{text} is required but {requirement.name} {version} is installed"
    return None


class _Files:
    """Opens blueprints and follows their bases."""

    def open(self, source: str | Path | Mapping[str, Any]) -> tuple[MappingNode, str, str]:
        if isinstance(source, Mapping):
            node = node_of(source, "<mapping>")
            assert isinstance(node, MappingNode)
            return node, "<mapping>", "utf-8"
        if str(source) == "-":
            return parse(sys.stdin.read(), "<stdin>"), "<stdin>", "utf-8"
        path = find(str(source), Path())
        text = read_blueprint(path)
        return parse(text.text, str(path)), str(path), text.encoding

    def chain(self, top: MappingNode, path: str) -> list[MappingNode]:
        """The mappings from the root of all bases to the file itself.

        Raises: BlueprintError where a base is missing or a file is its own base.
        """
        mappings, seen = [top], [_identity(path)]
        while (base := _base(mappings[0])) is not None:
            name, where = base
            folder = Path() if path.startswith("<") else Path(path).parent
            path = str(find(name, folder, where))
            if _identity(path) in seen:
                names = " -> ".join([*(Path(p).name for p in seen), Path(path).name])
                raise BlueprintError(Problem(where, "base", f"a blueprint cannot be its own base: {names}"))
            seen.append(_identity(path))
            mappings.insert(0, parse(read_blueprint(Path(path)).text, path))
        return mappings


def _identity(path: str) -> str:
    return path if path.startswith("<") else str(Path(path).resolve())


def _base(mapping: MappingNode) -> tuple[str, Where] | None:
    node = next((entry.value for entry in mapping.entries if entry.key == "base"), None)
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return None
    if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value:
        return node.value, node.where
    raise BlueprintError(Problem(node.where, "base", f"must be a file or a published name, not {describe(node)}"))


def find(name: str, folder: Path, where: Where = NOWHERE) -> Path:
    """The blueprint called ``name``: a path from ``folder``, or a published name.

    Raises: BlueprintError (from reading) where there is neither.
    """
    path = folder / name
    candidates = [path] if path.suffix else [path.with_name(path.name + SUFFIX), path]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    if "/" not in name and "\\" not in name:
        for published in published_folders():
            found = published / (name if name.endswith(SUFFIX) else name + SUFFIX)
            if found.is_file():
                return found
    if where != NOWHERE:
        message = f"there is no blueprint '{name}', neither in {folder.resolve()} nor among the published ones"
        raise BlueprintError(Problem(where, "base", message))
    return path


def published_folders() -> Iterator[Path]:
    """Where published blueprints stand: in a checkout, or after an install."""
    yield Path(__file__).resolve().parents[2] / "blueprints" / "published"
    yield Path(sysconfig.get_path("data")) / "share" / "architecture-explorer" / "published"
