"""A cross-check as text: what each tool prints for a block, and what makes up the difference to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.report.document import Document, workload_text
from explorer.report.grid import GAP, HANG, GridColumn, grid, wrap
from explorer.report.markdown import escaped
from explorer.report.naming import Namer, namer
from explorer.report.terminal import BOLD, DIM, PLAIN
from explorer.report.units import NOTHING, exact, printable

RED = "\x1b[31m"
PART = "· "
TITLE = "cross-check · "
UNEXPLAINED = "unexplained"
FAILED = "not checked"
HEADS = {
    "matmul_flops": "matmul FLOPs, dense",
    "matmul_flops_exact": "matmul FLOPs, exact (visible pairs only)",
    "params": "parameters",
}

Entry = Mapping[str, Any]
"""One block under one workload, as `CrossCheck.to_dict` gives it."""
Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A tool, or under it one part of its difference. red: what nobody explains."""

    name: str
    prints: str
    difference: str
    red: bool = False


def entries(document: Document, name: Namer) -> list[Entry]:
    """The entries of all rows, named by their rows where there are several."""
    rows = [row for row in document["combinations"] if row.get("crosscheck")]
    alone = len(document["combinations"]) == 1
    return [
        entry if alone else {**entry, "name": f"{name(row)} · {entry['name']}"}
        for row in rows
        for entry in row["crosscheck"]
    ]


def terminal(entries: Sequence[Entry], *, width: int, color: bool) -> str:
    """All entries; no line is longer than ``width`` cells, from about 60 cells on."""
    blocks = ["\n".join(_block(entry, width, color)) for entry in entries]
    legend = [_styled(line, DIM, color) for text in _legend(entries) for line in wrap(text, width, HANG)]
    return "\n\n".join([*blocks, "\n".join(legend)]) + "\n"


def markdown(entries: Sequence[Entry]) -> str:
    """All entries as GitHub Markdown."""
    blocks = ["\n\n".join(_markdown_block(entry)) for entry in entries]
    legend = "\n".join(f"- {escaped(text)}" for text in _legend(entries))
    return "\n\n".join([*blocks, legend]) + "\n"


def unexplained(document: Document) -> list[str]:
    """A line for each number of a tool that does not follow from ours and the known reasons."""
    return [
        f"{_title(entry).removeprefix(TITLE)}: {tool['tool']} prints {_prints(tool)} for {HEADS[tool['quantity']]}; "
        f"ours and the known reasons say {exact(tool['expected'])}, nobody explains "
        f"{_signed(tool['converted'] - tool['expected'])}"
        for entry in entries(document, namer(document))
        for tool in entry["tools"]
        if tool["explained"] is False
    ]


def _block(entry: Entry, width: int, color: bool) -> Iterator[str]:
    yield from (_styled(line, BOLD, color) for line in wrap(_title(entry), width))
    if entry["reason"]:
        yield from wrap(printable(entry["reason"]), width, HANG)
    for head, tools in _sections(entry):
        lines = [_ours(tools), *(line for tool in tools for line in _lines(tool))]
        yield ""
        for row in grid(_columns(head, lines, width)):
            style = BOLD if row.row is None else RED if lines[row.row].red else ""
            yield _styled(row.text, style, color and bool(style))


def _columns(head: str, lines: Sequence[Line], width: int) -> list[GridColumn]:
    prints = max(len(text) for text in ("prints", *(line.prints for line in lines)))
    difference = max(len(text) for text in ("difference", *(line.difference for line in lines)))
    return [
        GridColumn(head, [line.name for line in lines], max(width - prints - difference - 2 * GAP, 16)),
        GridColumn("prints", [line.prints for line in lines], prints, right=True),
        GridColumn("difference", [line.difference for line in lines], difference, right=True),
    ]


def _lines(tool: Tool) -> Iterator[Line]:
    """The tool, then the parts of its difference, which add up to it."""
    yield Line(tool["tool"], _prints(tool), _signed(tool["gap"]), red=tool["explained"] is False)
    if tool["gap"] is None:
        return
    for reason in tool["reasons"]:
        yield Line(f"{PART}{printable(reason['name'])}", "", _signed(reason["amount"]))
    if tool["explained"] is False:
        yield Line(f"{PART}{UNEXPLAINED}", "", _signed(tool["converted"] - tool["expected"]), red=True)


def _markdown_block(entry: Entry) -> Iterator[str]:
    yield f"### {escaped(_title(entry))}"
    if entry["reason"]:
        yield escaped(printable(entry["reason"]))
    for head, tools in _sections(entry):
        rows = [f"| {escaped(head)} | prints | difference | made up of |", "| --- | ---: | ---: | --- |"]
        rows.append(f"| {_ours(tools).name} | {_ours(tools).prints} | | |")
        rows += [f"| {tool['tool']} | {_prints(tool)} | {_signed(tool['gap'])} | {_parts(tool)} |" for tool in tools]
        yield "\n".join(rows)


def _parts(tool: Tool) -> str:
    _, *parts = _lines(tool)
    texts = [(f"{escaped(line.name.removeprefix(PART))} {line.difference}", line.red) for line in parts]
    return "; ".join(f"**{text}**" if red else text for text, red in texts)


def _title(entry: Entry) -> str:
    return f"{TITLE}{printable(entry['name'])} · {workload_text(entry['workload'])}"


def _sections(entry: Entry) -> Iterator[tuple[str, list[Tool]]]:
    """The tools by what they are about, under its head."""
    for quantity, head in HEADS.items():
        if tools := [tool for tool in entry["tools"] if tool["quantity"] == quantity]:
            yield head, tools


def _ours(tools: Sequence[Tool]) -> Line:
    unit = "parameter" if tools[0]["quantity"] == "params" else "FLOP"
    return Line("explorer", f"{exact(tools[0]['ours'])} {unit}", "")


def _prints(tool: Tool) -> str:
    """ "7,247,757,312 MAC x 2"."""
    if tool["printed"] is None:
        return FAILED if tool["explained"] is None else NOTHING
    times = f" x {tool['factor']}" if tool["factor"] != 1 else ""
    return f"{exact(tool['printed'])} {tool['unit']}{times}"


def _signed(value: int | None) -> str:
    return NOTHING if value is None else f"{value:+,}" if value else "0"


def _legend(entries: Sequence[Entry]) -> list[str]:
    """What each reason says, what each tool left out, and the versions of the tools."""
    tools = [tool for entry in entries for tool in entry["tools"]]
    reasons = {reason["name"]: reason["why"] for tool in tools for reason in tool["reasons"]}
    notes = {f"{tool['tool']}: {printable(tool['note'])}": None for tool in tools if tool["note"]}
    versions = {f"{tool['tool'].split(',')[0]} {tool['version']}": None for tool in tools if tool["version"]}
    return [
        *(f"{printable(name)}: {printable(why)}" for name, why in reasons.items()),
        *notes,
        *([f"x 2: a multiply-add is 2 FLOPs. {', '.join(versions)}"] if tools else []),
    ]


def _styled(text: str, style: str, color: bool) -> str:
    return f"{style}{text}{PLAIN}" if color else text
