"""Where blueprints are found: by path, beside the file that names them, or by published name."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from explorer.blueprint.tree import MappingNode, ScalarNode, describe, node_of
from explorer.blueprint.yaml_source import MAX_BYTES, SourceText, parse_with_problems, read_blueprint, source_text
from explorer.errors import BlueprintError, Problem, Where, did_you_mean, hints

SUFFIXES = (".yaml", ".yml")
MOST_NAMES = 3
"""Published names that a message suggests."""
ALIKE = 0.6
"""Likeness from which on a name is suggested, as in `did_you_mean`."""


@dataclass(frozen=True)
class Source:
    """A blueprint as written. ``path`` is ``<mapping>`` or ``<stdin>`` where there is no file."""

    mapping: MappingNode
    path: str
    encoding: str = "UTF-8"
    problems: tuple[Problem, ...] = ()  # of single values: the rest is read all the same

    @property
    def folder(self) -> Path:
        """What its base is relative to."""
        return Path(self.path).parent if self.is_file else Path()

    @property
    def is_file(self) -> bool:
        return not self.path.startswith("<")

    @property
    def identity(self) -> str:
        return str(Path(self.path).resolve()) if self.is_file else self.path


def open_source(source: str | Path | Mapping[str, Any]) -> Source:
    """The blueprint at a path, of a published name, from standard input ("-") or from a mapping.

    Raises: BlueprintError.
    """
    if isinstance(source, Mapping):
        node = node_of(source, "<mapping>")
        assert isinstance(node, MappingNode)
        return Source(node, "<mapping>")
    if str(source) == "-":
        return _parsed(source_text(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"), "<stdin>")
    return _read(find(str(source), Path()) or _missing(str(source)))


def _read(path: Path) -> Source:
    return _parsed(read_blueprint(path), str(path))


def _parsed(text: SourceText, path: str) -> Source:
    tree, problems = parse_with_problems(text.text, path)
    return Source(tree, path, text.encoding, tuple(problems))


def chain(top: Source) -> list[Source]:
    """The blueprint after all its bases, the root of them first.

    Raises: BlueprintError where a base is missing or a blueprint is its own base.
    """
    found = [top]
    while (base := _base(found[0])) is not None:
        if any(base.identity == other.identity for other in found):
            node = _base_node(found[0])
            names = " -> ".join(Path(source.path).name for source in [*reversed(found), base])
            where = node.where if node else Where(found[0].path)
            raise BlueprintError(Problem(where, "base", f"a blueprint cannot be its own base: {names}"))
        found.insert(0, base)
    return found


def _base_node(source: Source) -> ScalarNode | None:
    """The name of the base, None where there is none."""
    node = next((entry.value for entry in source.mapping.entries if entry.key == "base"), None)
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return None
    if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value:
        return node
    raise BlueprintError(Problem(node.where, "base", f"must be a file or a published name, not {describe(node)}"))


def _base(source: Source) -> Source | None:
    node = _base_node(source)
    if node is None:
        return None
    path = find(str(node.value), source.folder)
    if path is None:
        homes = f"neither in {source.folder.resolve()} nor among the published ones"
        message = f"there is no blueprint '{node.value}', {homes}"
        raise BlueprintError(Problem(node.where, "base", message, hints(*_close(str(node.value), source.folder))))
    if path.is_dir():
        raise BlueprintError(Problem(node.where, "base", f"'{node.value}' is a directory; a blueprint is one file"))
    return _read(path)


def find(name: str, folder: Path) -> Path | None:
    """The file called ``name``, its suffix left out or not: from ``folder``, else a published one."""
    path = folder / name
    beside = [path, *(path.with_name(path.name + suffix) for suffix in SUFFIXES)] if path.name else [path]
    published = [home / (name.removesuffix(".yaml") + ".yaml") for home in published_folders()]
    candidates = beside if _has_folder(name) else [*beside, *published]
    files = (candidate for candidate in candidates if candidate.is_file())
    # A pipe or a directory is nothing to prefer, but its own error says more than "no such file".
    return next(files, path if path.exists() else None)


def _has_folder(name: str) -> bool:
    return "/" in name or "\\" in name


def _missing(name: str) -> Path:
    """Raises: BlueprintError."""
    raise BlueprintError(Problem(Where(name), "", "no such file", hints(*_close(name, Path()))))


def _close(name: str, folder: Path) -> Iterator[str | None]:
    path = folder / name
    if not path.parent.is_dir():
        yield f"there is no folder {str(path.parent)!r}"
        return
    beside = [file.name for file in path.parent.iterdir() if file.suffix in SUFFIXES]
    near = did_you_mean(path.name, [*beside, *(Path(file).stem for file in beside)])
    if _has_folder(name):
        yield near
        return
    yield near or _like_published(name)
    homes = [str(home) for home in published_folders() if home.is_dir()]
    yield f"published blueprints stand in {homes[0]}" if homes else None


def _like_published(name: str) -> str | None:
    """ "did you mean 'mistral-7b-v0.1' or 'mixtral-8x7b'?": few know more of a name than how it begins."""
    near = {other: _likeness(_bare(name.removesuffix(".yaml")), _bare(other)) for other in published_names()}
    best = [repr(other) for other in sorted(near, key=lambda other: -near[other]) if near[other] >= ALIKE]
    return f"did you mean {' or '.join(best[:MOST_NAMES])}?" if best else None


def _bare(name: str) -> str:
    """ "Llama-3-8B" -> "llama38b"."""
    return "".join(filter(str.isalnum, name.lower()))


def _likeness(word: str, other: str) -> float:
    return max(SequenceMatcher(None, part, word).ratio() for part in (other, other[: len(word) + 1]))


def published_names() -> list[str]:
    """The names of published blueprints, sorted."""
    return sorted({file.stem for home in published_folders() if home.is_dir() for file in home.glob("*.yaml")})


def published_folders() -> Iterator[Path]:
    """Where published blueprints stand: in a checkout, or after an install."""
    yield Path(__file__).resolve().parents[2] / "blueprints" / "published"
    yield Path(sysconfig.get_path("data")) / "share" / "architecture-explorer" / "published"
