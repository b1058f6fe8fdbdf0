"""A component in words: what it computes, where it comes from, what may be written for it, what one of it costs."""

import re
import textwrap
from collections.abc import Iterable, Iterator

from explorer.assembly.declared import leaks
from explorer.cost.costs import incomplete_text
from explorer.cost.instance import InstanceCost, Sizes
from explorer.cost.ledger.rows import Counts
from explorer.registry.parameters import Parameter
from explorer.registry.registry import Component
from explorer.report.units import UNKNOWN, exact

_BEGINS = re.compile(r"\w+(, \w+)*: ")
_LIST = re.compile(r"[\w ]+: ")
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def describe(component: Component, width: int) -> Iterator[str]:
    """Lines: name and package, docstring, sources, what it declares, what the block gives, parameters."""
    for line in _description(component):
        yield from _wrapped(line, width)


def _description(component: Component) -> Iterator[str]:
    yield f"{component.kind.name} {component.name}, from {component.package} ({component.origin})"
    for paragraph in component.doc.split("\n\n"):
        yield ""
        yield from (f"  {item}" for item in _items(paragraph.splitlines()))
    yield ""
    sources = dict.fromkeys(_ARXIV.findall(component.doc))
    if sources:
        yield f"  sources: {' '.join(f'https://arxiv.org/abs/{number}' for number in sources)}"
    leak = leaks(component.constructor)
    if leak is not None:
        yield f"  leaks: {leak}"
    yield f"  from the block: {', '.join(component.schema.picks) or 'nothing'}"
    yield from _parameters(component)
    yield f"  in a blueprint: {component.kind.name}: {_example(component)}"


def _wrapped(line: str, width: int) -> list[str]:
    """The line at most so wide; what goes on stands under its first word, of parameters and other lists deeper."""
    indent = " " * (len(line) - len(line.lstrip()))
    further = indent + ("  " if indent and _LIST.match(line.lstrip()) else "")
    return textwrap.wrap(line, width, subsequent_indent=further, break_on_hyphens=False, break_long_words=False) or [""]


def _items(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a paragraph joined to what is said of one thing: `name: ...` begins another."""
    item = ""
    for line in lines:
        if item and _BEGINS.match(line):
            yield item
            item = ""
        item = f"{item} {line.strip()}".strip()
    yield item


def _parameters(component: Component) -> Iterator[str]:
    parameters = list(component.schema.parameters.values())
    yield f"  parameters:{'' if parameters else ' none'}"
    for parameter in parameters:
        default = "required" if parameter.required else f"default {parameter.default_text}"
        yield f"    {parameter.name}: {parameter.type_text} ({default})"


def _example(component: Component) -> str:
    values = ", ".join(f"{parameter.name}: ..." for parameter in required(component))
    return f"{{{component.label}: {{{values}}}}}" if values else component.label


def required(component: Component) -> list[Parameter]:
    """The parameters that must be written."""
    return [parameter for parameter in component.schema.parameters.values() if parameter.required]


def describe_cost(written: str, cost: InstanceCost, sizes: Sizes, width: int) -> Iterator[str]:
    """Lines: parameters, operations and bytes of one forward and, of an attention, its cache."""
    for line in _cost(written, cost, sizes):
        yield from _wrapped(line, width)


def _cost(written: str, cost: InstanceCost, sizes: Sizes) -> Iterator[str]:
    at = f"dim {sizes.dim:,}, heads {sizes.heads:,}, {sizes.tokens:,} tokens, {sizes.dtype}"
    yield f"  cost of one {written} at {at}:"
    if cost.where is not None:
        yield f"    of {cost.where}"
    yield f"    parameters: {exact(cost.params)}"
    yield "    one forward, counted on meta; 1 multiply-add = 2 FLOPs"
    yield from _operations(cost.counts)
    if cost.kv is None:
        return
    if cost.kv.reason is not None:
        yield f"    cache: {UNKNOWN}: {cost.kv.reason}"
        return
    full = exact(cost.kv.per_token_full)
    yield f"    cache, bytes a token: {exact(cost.kv.per_token)}; with all windows full: {full}"
    yield f"    cache, bytes at {sizes.tokens:,} tokens: {exact(cost.kv.cache)}"


def _operations(counts: Counts | None) -> Iterator[str]:
    if counts is None:
        yield f"    operations: {UNKNOWN}"
        return
    yield f"    matmul FLOPs: {exact(counts.matmul_flops)} (dense), {exact(counts.matmul_flops_exact)} (exact)"
    cheap, others = f"{counts.cheap_ops:,} cheap", f"{counts.transcendental_ops:,} transcendental"
    parts = f" ({cheap}, {others}, {counts.reduction_ops:,} reductions)" if counts.elementwise_ops else ""
    yield f"    elementwise ops: {exact(counts.elementwise_ops)}{parts}"
    weights, cache = counts.read_weights + counts.written_weights, counts.read_cache + counts.written_cache
    rest = counts.read_activations + counts.written_activations
    parts = f"weights {weights:,}, activations {rest:,}, cache {cache:,}"
    yield f"    moved bytes: {exact(counts.moved_bytes)}" + (f" ({parts})" if counts.moved_bytes else "")
    yield f"    fused bytes: {exact(counts.fused_bytes)} (element-wise chains fused)"
    yield f"    kernels: {exact(counts.kernels)}"
    if counts.incomplete:
        yield f"    a lower bound: {incomplete_text(counts)} not counted"


def how_to_cost(component: Component) -> str:
    """What to write to see the cost of a component with required parameters."""
    values = ":".join(f"{parameter.name}=..." for parameter in required(component))
    return f"  cost of one: give what is required, explorer plugins show {component.label}:{values}"
