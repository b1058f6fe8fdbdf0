"""`explorer run`: a blueprint becomes a table."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.folder import BLUEPRINT, FEW, MANY, OPTIONS, Content, opened, refuse_foreign, write_result
from explorer.cli.formats import SHOWN, Format, pieces
from explorer.cli.installed import loaded
from explorer.cli.latency_options import Cache, Device, Effort, Efforts, Impl, Resume, words
from explorer.cli.options import Axis, Change, Debug, Modules, Source, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import complain, emit

if TYPE_CHECKING:
    from explorer.blueprint.blueprint import Blueprint
    from explorer.study.result import Result


PLAIN = {"--effort": Effort.default.value, "--impl": "eager", "--cache": "auto", "--resume": False}
"""What options that belong to measuring alone are where they are not written."""
BARE = {"--measure": ("all", ("parts", "pareto"))}
"""Options that may stand without a value."""


@dataclass(frozen=True)
class Request:
    """The options that decide the result; a run folder keeps them."""

    blueprint: str
    axis: list[str]
    set: list[str]
    workload: list[str]
    plugins: list[str]
    measure: str | None
    effort: str
    device: str | None
    impl: str
    cache: str
    hardware: str
    limit: int
    audit: int | None
    crosscheck: bool
    breakdown: bool


def run(
    blueprint: Source,
    axis: Axis = None,
    change: Change = None,
    workload: Workload = None,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="[WHAT]",
            help="Measure latency: all (when nothing follows), parts (each distinct part once, and some whole blocks), "
            "pareto (rows that no other beats in all that is counted), or a number of rows.",
        ),
    ] = None,
    effort: Efforts = Effort.default,
    device: Device = None,
    impl: Impl = "eager",
    cache: Cache = "auto",
    resume: Resume = False,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Also predict latency on hardware, such as h100-sxm (estimate from its data sheet), or on local, this "
            "device as `explorer calibrate` measured it.",
        ),
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
        impl=impl,
        cache=cache,
        hardware=hardware or "",
        limit=limit,
        audit=audit,
        crosscheck=crosscheck,
        breakdown=breakdown,
    )
    with exit_codes(debug):
        _refuse_empty(measure, hardware)
        sys.exit(_answer(request, form, out, resume))


def _refuse_empty(measure: str | None, hardware: str | None) -> None:
    from explorer.errors import UsageError

    if measure is not None and not measure:
        raise UsageError("--measure= is empty; it takes all, parts, pareto or a number of rows")
    if hardware is not None and not words(hardware):
        raise UsageError("--hardware is empty; name a device at least, such as h100-sxm, or local")


def _answer(request: Request, form: Format, out: Path | None, resume: bool) -> int:
    """Do the work, write and print its result; 1 where a measurement failed or a number did not stand a check."""
    import explorer
    from explorer.cli.kept import forget, keeping, measurements, tell_left

    blueprint = loaded(
        request.blueprint, request.plugins, axis=request.axis, change=request.set, workload=request.workload
    )
    _note_unused(request, resume)
    store = measurements(out, resume) if request.measure else None
    _note_unshown(request, form)
    refuse_foreign(out)
    with opened(out), keeping(store), Progress() as progress:
        result = explorer.run(
            blueprint,
            measure=request.measure or False,
            effort=request.effort,
            device=request.device,
            impls=words(request.impl),
            cache=request.cache,
            store=store,
            hardware=words(request.hardware),
            limit=request.limit,
            audit=request.audit,
            crosscheck=request.crosscheck,
            on_progress=progress,
        )
    try:
        if out is not None:
            _write(out, result, blueprint, request)
            forget(store, result.head.get("measurements", ()))
    finally:
        emit(pieces(result, form, breakdown=request.breakdown, folder=out), utf8=form is not Format.table)
    if form is Format.csv and not result.many:
        _note_left_out(result)
    if not result.head.get("measurements"):
        tell_left(store)
    _complain(result)
    return 1 if result.failed else 0


def _note_unused(request: Request, resume: bool) -> None:
    """A line where options that belong to measuring were written, and nothing is measured."""
    if request.measure:
        return
    given = dict(zip(PLAIN, (request.effort, request.impl, request.cache, resume), strict=True))
    unused = [option for option, value in given.items() if value != PLAIN[option]]
    if unused:
        verb = "matters" if len(unused) == 1 else "matter"
        typer.echo(f"note: {' and '.join(unused)} {verb} only with --measure", err=True)
    if request.device and "local" not in words(request.hardware):
        typer.echo("note: --device matters only with --measure or --hardware local", err=True)


def _note_unshown(request: Request, form: Format) -> None:
    """A line where CSV, which has a row for each cost, does not show what was asked for."""
    wanted = {"--breakdown": request.breakdown, "--crosscheck": request.crosscheck}
    lost = [option for option, asked in wanted.items() if asked]
    if form is Format.csv and lost:
        typer.echo(f"note: --format csv does not show {' and '.join(lost)}; table, md and json do", err=True)


def _note_left_out(result: "Result") -> None:
    """A line where costs have more latencies than CSV has room for."""
    from explorer.study.frame import entries_left_out

    count = entries_left_out(result.to_dict())
    if count:
        verb = "stands" if count == 1 else "stand"
        typer.echo(f"note: --format csv shows the first latency of each cost; {count} more {verb} in json", err=True)


def _write(folder: Path, result: "Result", blueprint: "Blueprint", request: Request) -> None:
    from explorer.blueprint.written import written
    from explorer.cli.yaml_text import yaml_text
    from explorer.report.json_text import json_text

    files: dict[str, Content] = {
        BLUEPRINT: yaml_text(written(blueprint)),
        OPTIONS: yaml_text(asdict(request)),
    }
    if result.many:
        files |= zip(MANY, (json_text(result.head), result.write_parquet), strict=True)
    else:
        forms = zip(FEW, (Format.json, Format.md, Format.csv), strict=True)
        files |= {name: pieces(result, form, breakdown=request.breakdown) for name, form in forms}
    write_result(folder, files)


def _complain(result: "Result") -> None:
    """What an audit or another counter does not confirm: the audit in one line, the rest stands in the result."""
    from explorer.report.audit import audit_head
    from explorer.report.crosscheck import unexplained

    document = result.excerpt(SHOWN)
    for line in audit_head(document):
        complain(f"audit: {line}")
    for line in unexplained(document):
        complain(f"cross-check: {line}")
