"""Text -> positioned tree, by strict rules. Nothing is ever constructed, imported or executed.

PyYAML's parser splits the text into events; what they mean is ours: the YAML 1.2 core schema, duplicate keys refused,
merge keys by the merge spec whatever the PyYAML release, aliases counted before anything walks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import yaml

from explorer.blueprint.tree import (
    MAX_DEPTH,
    MAX_VALUES,
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    child,
    describe,
    unusable,
)
from explorer.blueprint.yaml_scalars import Refusal, resolve
from explorer.blueprint.yaml_syntax import syntax_problem
from explorer.errors import BlueprintError, Problem, Where, did_you_mean, hints

MAX_PROBLEMS = 100

_CORE = "tag:yaml.org,2002:"
_TYPES: dict[str, tuple[type, ...]] = {
    f"{_CORE}null": (type(None),),
    f"{_CORE}bool": (bool,),
    f"{_CORE}int": (int,),
    f"{_CORE}float": (float, int),
}


@dataclass(frozen=True)
class _Anchor:
    """What ``&name`` stands for; ``values`` and ``levels`` as when written out. No ``node`` while it is being read."""

    where: Where
    node: Node | None = None
    values: int = 0
    levels: int = 0


class Composer:
    """Builds the tree of one text and gathers its problems.

    An alias shares the node of its anchor, but counts with all that it would be when written out: a few hundred bytes
    that mean 9^9 values are refused while they are read, before anything walks them.
    """

    def __init__(self, text: str, file: str | None):
        self._text = text
        self._file = file
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)
        self._here = Where(file, 1, 1)  # where the latest event starts
        self._problems: list[Problem] = []
        self._anchors: dict[str, _Anchor] = {}
        self._values = 0
        self._deepest = 0

    def document(self) -> tuple[Node, list[Problem]]:
        """The tree, null where the text holds nothing, and the problems of what it holds.

        What cannot be used stands as text or null in the tree, so that the rest can still be read. Raises
        BlueprintError where nothing after a place can be.
        """
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            return ScalarNode(None, Where(self._file)), []
        root = self._node(self._next(), "", 1)
        self._next()  # the end of the document
        if isinstance(self._next(), yaml.DocumentStartEvent):
            self._report(self._here, "", "a second document starts here", "a blueprint is one document")
        return root, self._problems

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        assert isinstance(event, yaml.NodeEvent), f"no node starts with {event}"
        self._spend(1, depth)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, depth)
        if event.anchor is not None:
            return self._anchored(event, path, depth)
        return self._content(event, path, depth)

    def _content(self, event: yaml.NodeEvent, path: str, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.MappingStartEvent):
            self._check_tag(event, "map", path)
            return self._mapping(path, depth)
        assert isinstance(event, yaml.SequenceStartEvent), f"no content starts with {event}"
        self._check_tag(event, "seq", path)
        return self._sequence(path, depth)

    def _sequence(self, path: str, depth: int) -> SequenceNode:
        where, items = self._here, list[Node]()
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, child(path, len(items)), depth + 1))
        return SequenceNode(tuple(items), where)

    def _mapping(self, path: str, depth: int) -> MappingNode:
        where, entries = self._here, list[Entry]()
        merged, merged_at = list[Entry](), 0
        seen: dict[tuple[str | None, bool], Where] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key_where, merging = self._here, _is_merge(event)
            key = self._key(event, path, depth + 1)
            inner, known = child(path, "?" if key is None else key), len(self._problems)
            value = self._node(self._next(), inner, depth + 1)
            if key is None:
                continue
            first = seen.setdefault((key, merging), key_where)
            if first is not key_where:
                self._report(key_where, inner, f"{key!r} stands twice in one mapping, first at {first}")
            elif not merging:
                entries.append(Entry(key, key_where, value))
            elif len(self._problems) == known:
                merged, merged_at = self._merged(value, inner), len(entries)
        own = {entry.key for entry in entries}
        entries[merged_at:merged_at] = [entry for entry in merged if entry.key not in own]
        return MappingNode(tuple(entries), where)

    def _key(self, event: yaml.Event, path: str, depth: int) -> str | None:
        where, known = self._here, len(self._problems)
        key = self._node(event, path, depth)
        if isinstance(key, ScalarNode) and isinstance(key.value, str):
            return key.value
        if len(self._problems) == known:
            hint = "quote it to make it text" if isinstance(key, ScalarNode) else None
            self._report(where, path, f"a key must be text, not {describe(key)}", hint)
        return None

    def _merged(self, value: Node, path: str) -> list[Entry]:
        """The entries that ``<<: value`` brings in: of equal keys the one of the earlier mapping (YAML merge spec)."""
        found: dict[str, Entry] = {}
        for source in value.items if isinstance(value, SequenceNode) else (value,):
            if not isinstance(source, MappingNode):
                self._report(source.where, path, f"<< takes a mapping or a list of mappings, not {describe(source)}")
                continue
            for entry in source.entries:
                found.setdefault(entry.key, entry)
        return list(found.values())

    def _anchored(self, event: yaml.NodeEvent, path: str, depth: int) -> Node:
        name, where, before, deepest = str(event.anchor), self._here, self._values, self._deepest
        if name in self._anchors:
            self._report(where, path, f"the anchor &{name} is defined twice, first at {self._anchors[name].where}")
        self._anchors[name] = _Anchor(where)
        self._deepest = depth
        node = self._content(event, path, depth)
        self._anchors[name] = _Anchor(where, node, self._values - before, self._deepest - depth)
        self._deepest = max(self._deepest, deepest)
        return node

    def _alias(self, event: yaml.AliasEvent, path: str, depth: int) -> Node:
        name = str(event.anchor)
        anchor = self._anchors.get(name)
        if anchor is None:
            guess = did_you_mean(name, self._anchors)
            self._report(self._here, path, f"the alias *{name} has no anchor &{name} before it", guess)
        elif anchor.node is None:
            message = f"the alias *{name} stands inside its own anchor &{name} ({anchor.where}): it would never end"
            self._report(self._here, path, message)
        else:
            self._spend(anchor.values, depth + anchor.levels)
            return anchor.node
        return ScalarNode(None, self._here)

    def _scalar(self, event: yaml.ScalarEvent, path: str) -> ScalarNode:
        tag = event.tag
        if tag is None and event.implicit[0]:
            return self._word(event.value, path)
        if tag in {None, "!", f"{_CORE}str"}:
            return self._text_node(event.value, path)
        types = _TYPES.get(str(tag))
        if types is None:
            self._refuse_tag(event, path)
            return ScalarNode(event.value, self._here)
        node = self._word(event.value, path)
        if type(node.value) not in types:
            self._report(self._here, path, f"{event.value!r} is not what its tag {_shown(str(tag))} says")
        if types[0] is float and isinstance(node.value, int):
            return ScalarNode(float(node.value), node.where)
        return node

    def _word(self, text: str, path: str) -> ScalarNode:
        value = resolve(text)
        if isinstance(value, Refusal):
            self._report(self._here, path, value.message, *value.hints)
            return ScalarNode(text, self._here)
        return ScalarNode(value, self._here)

    def _text_node(self, text: str, path: str) -> ScalarNode:
        # JSON writes a character above U+FFFF as two escapes, which PyYAML leaves as two halves.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        refusal = unusable(text)
        if refusal:
            self._report(self._here, path, refusal)
        return ScalarNode(text, self._here, quoted=True)

    def _check_tag(self, event: yaml.CollectionStartEvent, expected: str, path: str) -> None:
        if event.tag not in {None, "!", f"{_CORE}{expected}"}:
            self._refuse_tag(event, path)

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, path: str) -> None:
        hint = "a blueprint names components, it never loads or runs anything"
        self._report(self._here, path, f"the tag {_shown(str(event.tag))} is not allowed here", hint)

    def _spend(self, values: int, depth: int) -> None:
        self._values += values
        self._deepest = max(self._deepest, depth)
        if self._values > MAX_VALUES:
            self._give_up(f"more than {MAX_VALUES:,} values when all aliases are written out")
        if depth > MAX_DEPTH:
            self._give_up(f"nested more than {MAX_DEPTH} levels deep")

    def _next(self) -> yaml.Event:
        try:
            event = next(self._events)
        except yaml.YAMLError as error:
            raise BlueprintError([*self._problems, syntax_problem(error, self._text, self._file)]) from None
        except (ValueError, OverflowError) as error:  # PyYAML's chr() of an escape such as "\UFFFFFFFF"
            self._give_up(f"not valid YAML after this place: {error}")
        mark = event.start_mark
        assert mark is not None, f"{event} has no place"
        self._here = Where(self._file, mark.line + 1, mark.column + 1)
        return event

    def _give_up(self, message: str) -> NoReturn:
        raise BlueprintError([*self._problems, Problem(self._here, "", message)])

    def _report(self, where: Where, path: str, message: str, *lines: str | None) -> None:
        self._problems.append(Problem(where, path, message, hints(*lines)))
        if len(self._problems) == MAX_PROBLEMS:
            self._give_up(f"{MAX_PROBLEMS} problems up to here; the rest is not read")


def _is_merge(event: yaml.Event) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.tag is None and event.implicit[0]


def _shown(tag: str) -> str:
    return f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
