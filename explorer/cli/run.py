"""`explorer run`: a blueprint becomes a table."""

import sys
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.folder import Content, opened, write
from explorer.cli.formats import SHOWN, Format, pieces
from explorer.cli.installed import loaded
from explorer.cli.options import Axis, Change, Debug, Modules, Source, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import complain, emit

if TYPE_CHECKING:
    from explorer.blueprint.blueprint import Blueprint
    from explorer.study.result import Result


class Effort(str, Enum):
    """What `--effort` takes."""

    quick = "quick"
    default = "default"
    publish = "publish"


@dataclass(frozen=True)
class Request:
    """The options that decide the result; a run folder keeps them."""

    blueprint: str
    axis: list[str]
    set: list[str]
    workload: list[str]
    plugins: list[str]
    measure: bool
    effort: str
    device: str | None
    limit: int
    audit: int | None
    crosscheck: bool
    breakdown: bool


def run(
    blueprint: Source,
    axis: Axis = None,
    change: Change = None,
    workload: Workload = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure latency on the device.")] = False,
    effort: Annotated[Effort, typer.Option(help="How long to measure.")] = Effort.default,
    device: Annotated[
        str | None,
        typer.Option(metavar="D", help="Device to measure on, such as cpu or cuda:1. Default: a GPU if any."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.table,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write result, blueprint, options and tables to a folder.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Refuse more combinations than this.")] = 100_000,
    audit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Trace N rows as a whole: every number must be the sum that was counted, else exit 1. "
            "Default: up to 8 rows, for some seconds.",
        ),
    ] = None,
    crosscheck: Annotated[
        bool,
        typer.Option(
            "--crosscheck",
            help="Also run other counters on each block and explain each difference; one that nobody explains is exit "
            "1. Seconds for each row.",
        ),
    ] = False,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Also show what attention, feed-forward, norms ... take of each cost.")
    ] = False,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Count, and with --measure time, every combination of a blueprint."""
    request = Request(
        blueprint=blueprint,
        axis=axis or [],
        set=change or [],
        workload=workload or [],
        plugins=modules or [],
        measure=measure,
        effort=effort.value,
        device=device,
        limit=limit,
        audit=audit,
        crosscheck=crosscheck,
        breakdown=breakdown,
    )
    with exit_codes(debug):
        sys.exit(_answer(request, form, out))


def _answer(request: Request, form: Format, out: Path | None) -> int:
    """Do the work, write and print its result; 1 where a measurement failed or a number did not stand a check."""
    import explorer

    blueprint = loaded(
        request.blueprint, request.plugins, axis=request.axis, change=request.set, workload=request.workload
    )
    if not request.measure and (request.device or request.effort != Effort.default):
        typer.echo("note: --device and --effort matter only with --measure", err=True)
    with opened(out), Progress() as progress:
        result = explorer.run(
            blueprint,
            measure=request.measure,
            effort=request.effort,
            device=request.device,
            limit=request.limit,
            audit=request.audit,
            crosscheck=request.crosscheck,
            on_progress=progress,
        )
    try:
        if out is not None:
            _write(out, result, blueprint, request)
    finally:
        emit(pieces(result, form, breakdown=request.breakdown), utf8=form is not Format.table)
    _complain(result)
    return 1 if result.failed else 0


FEW, MANY = ("result.json", "table.md", "table.csv"), ("study.json", "costs.parquet")
"""Files of a run of few rows, and of one of many."""


def _write(folder: Path, result: "Result", blueprint: "Blueprint", request: Request) -> None:
    from explorer.blueprint.written import written
    from explorer.cli.yaml_text import yaml_text
    from explorer.report.json_text import json_text

    files: dict[str, Content] = {
        "blueprint.yaml": yaml_text(written(blueprint)),
        "options.yaml": yaml_text(asdict(request)),
    }
    if result.many:
        files |= {"study.json": json_text(result.head), "costs.parquet": result.write_parquet}
    else:
        forms = zip(FEW, (Format.json, Format.md, Format.csv), strict=True)
        files |= {name: pieces(result, form, breakdown=request.breakdown) for name, form in forms}
    write(folder, files, stale=[name for name in (*FEW, *MANY) if name not in files])


def _complain(result: "Result") -> None:
    """A line for each number that an audit or another counter does not confirm."""
    from explorer.report.audit import audit_lines
    from explorer.report.crosscheck import unexplained

    document = result.excerpt(SHOWN) if result.many else result.to_dict()
    for line in audit_lines(document):
        complain(f"audit: {line}")
    for line in unexplained(document):
        complain(f"cross-check: {line}")
