"""The table of devices: built in, from plugins, and a user's own file merged over both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, node_of
from explorer.blueprint.yaml_source import parse_value
from explorer.errors import BlueprintError, UsageError, did_you_mean
from explorer.prediction.hardware import BUILT_IN, Hardware
from explorer.prediction.hardware_reader import (
    ACHIEVABLE,
    HOST,
    SNIPPET,
    Defaults,
    Problems,
    read_device,
    read_mapping,
    read_values,
    usage_error,
)
from explorer.registry.registry import HardwareEntry

VARIABLE = "EXPLORER_HARDWARE"
"""The environment variable that names a user's own file."""


@dataclass(frozen=True)
class HardwareTable:
    """Devices by name, in order."""

    devices: Mapping[str, Hardware]

    def find(self, text: str) -> Hardware:
        """The device of this name, or that a driver calls so; upper and lower case are one.

        Raises: UsageError, listing the names and what to add, for a device that is not in the table.
        """
        found = self.known(text)
        if found is not None:
            return found
        guess = self._guess(text)
        snippet = SNIPPET.format(name="my-device", match=text)
        raise UsageError(
            f"hardware {text!r} is not in the table{f'; {guess}' if guess else ''}\n"
            f"  it has: {', '.join(self.devices)}\n"
            f"  add it in {user_file()} (or the file that {VARIABLE} names):\n{_indented(snippet)}"
        )

    def known(self, text: str) -> Hardware | None:
        """The same device, None where there is none."""
        folded = text.casefold()
        for device in self.devices.values():
            if folded in (name.casefold() for name in (device.name, *device.match)):
                return device
        return None

    def _guess(self, text: str) -> str | None:
        """The name that holds the text, or is closest to it."""
        names = [*self.devices, *(alias for device in self.devices.values() for alias in device.match)]
        holding = [name for name in names if text and text.casefold() in name.casefold()]
        return f"did you mean {holding[0]!r}?" if holding else did_you_mean(text, names)


def hardware_table(plugins: Iterable[HardwareEntry] = (), file: Path | None = None) -> HardwareTable:
    """Everything that is known; plugins: what packages register. file: the user's own; None: where it usually lies.

    Raises: UsageError that says where for an unknown key, a wrong type, a missing source, and a name or alias twice.
    """
    built_in = _parsed(files("explorer.prediction").joinpath("hardware.yaml").read_text(encoding="utf-8"), BUILT_IN)
    problems = Problems()
    tops = read_mapping(built_in, "", problems)
    defaults = _defaults(tops, problems)
    nodes: dict[str, tuple[Node, str]] = {}
    for name, entry in read_mapping(tops["hardware"].value, "hardware", problems).items():
        nodes[name] = entry.value, BUILT_IN
    for registered in plugins:
        _register(registered, nodes)
    for name, entry in _users(_chosen(file), problems).items():
        before = nodes.get(name)
        nodes[name] = _merged(before[0] if before else None, entry), _file_of(entry)
    found = [read_device(name, node, defaults, origin, problems) for name, (node, origin) in nodes.items()]
    problems.raise_them()
    devices = {device.name: device for device in found if device is not None}
    _refuse_shared_names(devices.values())
    return HardwareTable(devices)


def user_file() -> Path:
    """Where a user's own table is looked for: what EXPLORER_HARDWARE names, else in the configuration folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "architecture-explorer" / "hardware.yaml"


def _defaults(tops: Mapping[str, Entry], problems: Problems) -> Defaults:
    achievable = read_values(tops["default_achievable"].value, "default_achievable", ACHIEVABLE, problems)
    host = read_values(tops["default_host"].value, "default_host", HOST, problems)
    problems.raise_them()
    return Defaults.of(achievable, host)


def _register(registered: HardwareEntry, nodes: dict[str, tuple[Node, str]]) -> None:
    if registered.name in nodes:
        other = nodes[registered.name][1]
        raise UsageError(f"{registered}: {other} has '{registered.name}' too; only a user's own file may override it")
    try:
        nodes[registered.name] = node_of(dict(registered.entry), str(registered)), str(registered)
    except BlueprintError as error:
        raise usage_error(error) from error


def _chosen(file: Path | None) -> Path | None:
    """The file to read; one that somebody named must be there."""
    if file is not None:
        return file
    usual = user_file()
    return usual if os.environ.get(VARIABLE) or usual.exists() else None


def _users(file: Path | None, problems: Problems) -> dict[str, Entry]:
    if file is None:
        return {}
    node = _parsed(_text(file), str(file))
    if isinstance(node, ScalarNode) and node.value is None:
        return {}
    tops = read_mapping(node, "", problems)
    for key, entry in tops.items():
        if key != "hardware":
            problems.add(entry, key, "a table of devices has one key, `hardware`", did_you_mean(key, ["hardware"]))
    return read_mapping(tops["hardware"].value, "hardware", problems) if "hardware" in tops else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{file}: the table of devices cannot be read: {reason}") from error


def _parsed(text: str, file: str) -> Node:
    try:
        return parse_value(text, file)
    except BlueprintError as error:
        raise usage_error(error) from error


def _merged(before: Node | None, entry: Entry) -> Node:
    """What a user wrote over what stood there: key by key, the inner mappings too."""
    over = entry.value
    if not isinstance(before, MappingNode) or not isinstance(over, MappingNode):
        return over
    kept = {one.key: one for one in before.entries}
    for one in over.entries:
        kept[one.key] = replace(one, value=_merged(kept[one.key].value if one.key in kept else None, one))
    return MappingNode(tuple(kept.values()), over.where)


def _file_of(entry: Entry) -> str:
    return entry.key_where.file or "user's file"


def _refuse_shared_names(devices: Iterable[Hardware]) -> None:
    owners: dict[str, Hardware] = {}
    for device, name in _names(devices):
        other = owners.setdefault(name.casefold(), device)
        if other is not device:
            raise UsageError(
                f"{device.origin}: hardware.{device.name}: {name!r} is also what '{other.name}' ({other.origin}) is "
                "called; a name belongs to one device"
            )


def _names(devices: Iterable[Hardware]) -> Iterator[tuple[Hardware, str]]:
    for device in devices:
        yield device, device.name
        yield from ((device, alias) for alias in device.match)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
