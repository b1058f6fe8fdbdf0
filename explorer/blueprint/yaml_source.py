"""The strict YAML layer: a file's bytes -> text -> positioned tree (see yaml_composer.py for the rules)."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from explorer.blueprint.tree import MappingNode, Node, ScalarNode, describe
from explorer.blueprint.yaml_composer import Composer
from explorer.errors import BlueprintError, Problem, Where, did_you_mean, hints

MAX_BYTES = 1 << 20

_EMPTY = "the blueprint is empty"
_EMPTY_HINT = "the smallest one is: {dim: 64, heads: 4}"
_CONTROL = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")


@dataclass(frozen=True)
class SourceText:
    """The text of a file and the encoding it was written in: ``UTF-8``, ``UTF-16`` or ``GB18030``."""

    text: str
    encoding: str


def read_blueprint(path: Path) -> SourceText:
    """The text of a blueprint file.

    UTF-8 with or without byte-order mark, UTF-16 with one, else GB18030 (which includes GBK). Raises BlueprintError for
    a file that is missing, a directory, unreadable, empty, larger than 1 MiB or no text.
    """
    return source_text(_bytes(path, Where(str(path))), str(path))


def source_text(data: bytes, file: str) -> SourceText:
    """As ``read_blueprint``, for bytes that came from elsewhere."""
    where = Where(file)
    if len(data) > MAX_BYTES:
        raise BlueprintError(Problem(where, "", "the file is larger than 1 MiB: this is no blueprint"))
    source = _decoded(data, where)
    if all(_says_nothing(line.strip()) for line in source.text.splitlines()):
        raise BlueprintError(Problem(where, "", _EMPTY, (_EMPTY_HINT,)))
    return source


def _bytes(path: Path, where: Where) -> bytes:
    """At most MAX_BYTES + 1 bytes of the file, so that a huge one costs nothing."""
    try:
        if path.is_dir():
            raise BlueprintError(Problem(where, "", "this is a directory; a blueprint is one file"))
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BlueprintError(Problem(where, "", "no such file", hints(_neighbour(path)))) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BlueprintError(Problem(where, "", f"the file cannot be read: {reason}")) from None


def _neighbour(path: Path) -> str | None:
    try:
        beside = sorted(file.name for file in path.parent.iterdir() if file.suffix in {".yaml", ".yml"})
    except OSError:
        return f"there is no folder {str(path.parent)!r}"
    return did_you_mean(path.name, beside)


def _decoded(data: bytes, where: Where) -> SourceText:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decoded_utf16(data, where)
    # A control byte says the same in UTF-8 and GB18030, and tells a binary file whatever its other bytes decode to.
    _refuse_control_characters(data.decode("latin-1"), where)
    for codec, encoding in (("utf-8-sig", "UTF-8"), ("gb18030", "GB18030")):
        try:
            return SourceText(data.decode(codec), encoding)
        except UnicodeDecodeError:
            continue
    raise BlueprintError(Problem(where, "", "the text is neither UTF-8 nor GB18030", ("save the file as UTF-8",)))


def _decoded_utf16(data: bytes, where: Where) -> SourceText:
    try:
        text = data.decode("utf-16")
    except UnicodeDecodeError:
        message = "the file begins like UTF-16 and is not valid UTF-16"
        raise BlueprintError(Problem(where, "", message, ("save the file as UTF-8",))) from None
    _refuse_control_characters(text, where)
    return SourceText(text, "UTF-16")


def _refuse_control_characters(text: str, where: Where) -> None:
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        message = f"control character 0x{ord(control.group()):02x}: this is no text file"
        raise BlueprintError(Problem(Where(where.file, line), "", message))


def _says_nothing(line: str) -> bool:
    return line in {"", "---", "..."} or line.startswith("#")


def parse(text: str, file: str | None) -> MappingNode:
    """The positioned tree of a blueprint's text; ``file`` is the name that errors give.

    Raises BlueprintError with every problem of the text at once; only after a syntax error the rest stays unread.
    """
    tree, problems = parse_with_problems(text, file)
    if problems:
        raise BlueprintError(problems)
    return tree


def parse_with_problems(text: str, file: str | None) -> tuple[MappingNode, list[Problem]]:
    """As ``parse``, with the problems of single values beside the tree.

    Raises BlueprintError where there is no tree.
    """
    node, problems = Composer(text, file).document()
    if isinstance(node, MappingNode):
        return node, problems
    if problems:
        raise BlueprintError(problems)
    if isinstance(node, ScalarNode) and node.value is None:
        raise BlueprintError(Problem(Where(file), "", _EMPTY, (_EMPTY_HINT,)))
    message = f"a blueprint is a mapping of fields, not {describe(node)}"
    raise BlueprintError(Problem(node.where, "", message, ("write field: value, with a space after the colon",)))


def parse_value(text: str, file: str | None) -> Node:
    """As ``parse``, for a text that is any one value, as in ``--set PATH=VALUE``; an empty one is null."""
    node, problems = Composer(text, file).document()
    if problems:
        raise BlueprintError(problems)
    return node
