"""`explorer latency`: two blueprints, one verdict."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.folder import OPTIONS, VERDICT, opened, refuse_foreign, refuse_sources, write_result
from explorer.cli.formats import Format
from explorer.cli.installed import loaded
from explorer.cli.latency_options import Cache, Device, Effort, Efforts, Impl, Resume, words
from explorer.cli.options import Change, Debug, Modules, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import emit, width


@dataclass(frozen=True)
class Request:
    """The options that decide the verdict; a folder keeps them."""

    one: str
    other: str
    set: list[str]
    workload: list[str]
    plugins: list[str]
    block: str | None
    effort: str
    device: str | None
    impl: str
    cache: str


def latency(
    one: Annotated[str, typer.Argument(metavar="A", help="YAML file or published blueprint that is the baseline.")],
    other: Annotated[
        str, typer.Argument(metavar="B", help="YAML file or published blueprint that is timed against it.")
    ],
    change: Change = None,
    workload: Workload = None,
    block: Annotated[str | None, typer.Option(metavar="NAME", help="Which block, where a model has several.")] = None,
    effort: Efforts = Effort.default,
    device: Device = None,
    impl: Impl = "eager",
    cache: Cache = "auto",
    resume: Resume = False,
    form: Annotated[Format, typer.Option("--format", help="What to print: table or json.")] = Format.table,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write result, table and options to a folder.")
    ] = None,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Time a block of one blueprint against a block of another, in the same rounds, and say what that shows."""
    request = Request(
        one=one,
        other=other,
        set=change or [],
        workload=workload or [],
        plugins=modules or [],
        block=block,
        effort=effort.value,
        device=device,
        impl=impl,
        cache=cache,
    )
    with exit_codes(debug):
        sys.exit(_answer(request, form, out, resume))


def _answer(request: Request, form: Format, out: Path | None, resume: bool) -> int:
    """Time the two, write and print the verdict; 1 where a measurement failed."""
    from explorer.cli.kept import forget, keeping, measurements
    from explorer.cli.yaml_text import yaml_text
    from explorer.errors import UsageError
    from explorer.report.json_text import json_text
    from explorer.report.versus import versus_text
    from explorer.study.measuring import Measuring
    from explorer.study.versus import versus

    if form not in (Format.table, Format.json):
        raise UsageError(f"latency prints table or json, not {form.value}; `run --measure` prints the others")
    a, b = (
        loaded(source, request.plugins, axis=None, change=request.set, workload=request.workload)
        for source in (request.one, request.other)
    )
    store = measurements(out, resume)
    refuse_foreign(out)
    refuse_sources(out, request.one, request.other)
    measuring = Measuring(
        effort=request.effort, device=request.device, impls=words(request.impl), cache=request.cache, store=store
    )
    with opened(out), keeping(store), Progress() as progress:
        result = versus(a, b, measuring, progress, request.block)
    document = result.to_dict()
    try:
        if out is not None:
            texts = zip(VERDICT, (json_text(document), versus_text(document, 80)), strict=True)
            write_result(out, {**dict(texts), OPTIONS: yaml_text(asdict(request))})
            forget(store, document["measurements"])
    finally:
        emit(json_text(document) if form is Format.json else versus_text(document, width()), utf8=form is Format.json)
    return 1 if result.failed else 0
