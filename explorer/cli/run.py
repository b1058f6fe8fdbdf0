"""`explorer run`: a blueprint becomes a table."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.folder import opened, write
from explorer.cli.formats import Format, as_text
from explorer.cli.installed import loaded
from explorer.cli.options import Axis, Change, Debug, Modules, Source, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import emit

if TYPE_CHECKING:
    from explorer.blueprint.blueprint import Blueprint


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
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Count, and with --measure time, every combination of a blueprint."""
    request = Request(
        blueprint, axis or [], change or [], workload or [], modules or [], measure, effort.value, device, limit
    )
    with exit_codes(debug):
        sys.exit(_answer(request, form, out))


def _answer(request: Request, form: Format, out: Path | None) -> int:
    """Do the work, write and print its result; 1 where a measurement failed."""
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
            on_progress=progress,
        )
    document = result.to_dict()
    try:
        if out is not None:
            write(out, _files(document, blueprint, request))
    finally:
        emit(as_text(document, form), utf8=form is not Format.table)
    return 1 if result.failed else 0


def _files(document: Mapping[str, Any], blueprint: "Blueprint", request: Request) -> dict[str, str]:
    from explorer.blueprint.written import written
    from explorer.cli.yaml_text import yaml_text

    return {
        "result.json": as_text(document, Format.json),
        "blueprint.yaml": yaml_text(written(blueprint)),
        "options.yaml": yaml_text(asdict(request)),
        "table.md": as_text(document, Format.md),
        "table.csv": as_text(document, Format.csv),
    }
