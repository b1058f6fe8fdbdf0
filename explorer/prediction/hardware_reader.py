"""Reads entries of the hardware table strictly: an unknown key or a wrong type is told with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Len

from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, child, describe, plain
from explorer.errors import BlueprintError, Problem, UsageError, did_you_mean, hints
from explorer.prediction.hardware import PEAKS, Hardware, HostCosts, Span
from explorer.registry.parameters import Shape, read_shape

_Amount = Annotated[float, Gt(0)]
_Share = Annotated[float, Gt(0), Le(1)]
_Range = Annotated[list[_Amount], Len(2, 2)]
_Shares = Annotated[list[_Share], Len(2, 2)]


def _shapes(**annotations: Any) -> Shapes:
    return MappingProxyType({name: read_shape(annotation) for name, annotation in annotations.items()})


Shapes = Mapping[str, "Shape | Shapes"]
"""What a mapping may hold, by key: values, and mappings in turn."""
ACHIEVABLE = _shapes(gemm=_Share, gemm_range=_Shares, bw=_Share, bw_range=_Shares)
HOST = _shapes(dispatch_us=_Amount, dispatch_range_us=_Range, view_us=Annotated[float, Ge(0)], graph_node_us=_Amount)
DEVICE: Shapes = MappingProxyType(
    {
        **_shapes(match=Annotated[list[str], Len(1)], **dict.fromkeys(PEAKS, _Amount | None)),
        **_shapes(bw=_Amount, mem=_Amount, llc=_Amount | None, achievable_src=str, src=str, note=str),
        "achievable": ACHIEVABLE,
        "host": HOST,
    }
)
_REQUIRED = ("match", "bw", "mem", "src")
_SPARSE = "peaks are dense: halve a figure that is printed with 2:4 sparsity"
SNIPPET = """\
hardware:
  {name}:
    match: ["{match}"]   # what the driver calls it
    bf16: 100            # dense TFLOP/s; also fp16, tf32, fp32, fp8
    bw: 1000             # GB/s
    mem: 24              # GB
    llc: 48              # MiB, or null
    src: https://...     # where the numbers stand"""


@dataclass
class Problems:
    """All that is wrong in one source, gathered while it is read."""

    found: list[Problem] = field(default_factory=list)

    def add(self, node: Node | Entry, path: str, message: str, *lines: str | None) -> None:
        where = node.key_where if isinstance(node, Entry) else node.where
        self.found.append(Problem(where, path, message, hints(*lines)))

    def raise_them(self) -> None:
        """Raises: UsageError with everything that was found, if anything was."""
        if self.found:
            raise UsageError("\n".join(map(str, self.found)))


def usage_error(error: BlueprintError) -> UsageError:
    """What the strict YAML layer found wrong, as a wrong argument: a table is no blueprint."""
    return UsageError("\n".join(map(str, error.problems)))


def read_mapping(node: Node, path: str, problems: Problems) -> dict[str, Entry]:
    """The entries of a mapping by key; none where the node is something else."""
    if isinstance(node, MappingNode):
        return {entry.key: entry for entry in node.entries}
    if not (isinstance(node, ScalarNode) and node.value is None):
        problems.add(node, path, f"must be a mapping, not {describe(node)}")
    return {}


def read_values(node: Node, path: str, shapes: Shapes, problems: Problems) -> dict[str, Any]:
    """The checked values of a mapping whose keys are those of `shapes`; what is wrong is left out and noted."""
    found = {}
    for key, entry in read_mapping(node, path, problems).items():
        shape = shapes.get(key)
        if shape is None:
            _unknown(entry, path, tuple(shapes), problems)
        elif isinstance(shape, Mapping):
            found[key] = read_values(entry.value, child(path, key), shape, problems)
        else:
            try:
                found[key] = _read(shape, entry.value)
            except ValueError as error:
                problems.add(entry.value, child(path, key), f"{error}, not {describe(entry.value)}")
    return found


def _read(shape: Shape, node: Node) -> Any:
    if shape.nullable and isinstance(node, ScalarNode) and node.value is None:
        return None
    return shape.read_leaf(plain(node))


def _unknown(entry: Entry, path: str, keys: Sequence[str], problems: Problems) -> None:
    hint = _SPARSE if "spars" in entry.key.lower() else did_you_mean(entry.key, keys)
    problems.add(entry, child(path, entry.key), f"there is no '{entry.key}'", hint, f"keys: {', '.join(keys)}")


@dataclass(frozen=True)
class Defaults:
    """What holds for a device that says nothing of its own."""

    gemm: Span
    bandwidth: Span
    host: HostCosts

    @staticmethod
    def of(achievable: Mapping[str, Any], host: Mapping[str, Any]) -> Defaults:
        return Defaults(
            Span(achievable["gemm"], *achievable["gemm_range"]),
            Span(achievable["bw"], *achievable["bw_range"]),
            HostCosts(
                Span(host["dispatch_us"], *host["dispatch_range_us"]),
                host["view_us"],
                host["graph_node_us"],
            ),
        )


def read_device(name: str, node: Node, defaults: Defaults, origin: str, problems: Problems) -> Hardware | None:
    """One entry of the table; None where something is wrong, which `problems` then holds."""
    before, path = len(problems.found), f"hardware.{name}"
    values = read_values(node, path, DEVICE, problems)
    if len(problems.found) == before:  # else what seems to be missing may only be misspelt
        for message in _missing(values):
            problems.add(node, path, message)
    return _device(name, values, defaults, origin) if len(problems.found) == before else None


def _missing(values: Mapping[str, Any]) -> Iterator[str]:
    for key in _REQUIRED:
        if key not in values:
            yield f"needs `{key}`" + (", where its numbers stand: a number without a source is no use" * (key == "src"))
    if not any(values.get(column) for column in PEAKS):
        yield f"needs a peak: one of {', '.join(PEAKS)} in dense TFLOP/s"


def _device(name: str, values: Mapping[str, Any], defaults: Defaults, origin: str) -> Hardware:
    achievable, host = values.get("achievable", {}), values.get("host", {})
    return Hardware(
        name=name,
        match=tuple(values["match"]),
        peaks=MappingProxyType({column: values.get(column) for column in PEAKS}),
        bandwidth_gbs=values["bw"],
        memory_gb=values["mem"],
        llc_mib=values.get("llc"),
        gemm=_span(defaults.gemm, achievable.get("gemm"), achievable.get("gemm_range")),
        bandwidth=_span(defaults.bandwidth, achievable.get("bw"), achievable.get("bw_range")),
        host=HostCosts(
            _span(defaults.host.dispatch_us, host.get("dispatch_us"), host.get("dispatch_range_us")),
            host.get("view_us", defaults.host.view_us),
            host.get("graph_node_us", defaults.host.graph_node_us),
        ),
        src=values["src"],
        achievable_src=values.get("achievable_src"),
        note=values.get("note"),
        origin=origin,
    )


def _span(default: Span, point: float | None, bounds: Sequence[float] | None) -> Span:
    """The default span with what the device says of its own; a point outside of its range widens it."""
    low, high = sorted(bounds) if bounds else (default.low, default.high)
    return Span(default.point, low, high).around(default.point if point is None else point)
