"""`explorer latency`: two blueprints, one verdict."""

import sys
from typing import Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.formats import Format
from explorer.cli.installed import loaded
from explorer.cli.latency_options import Cache, Device, Effort, Efforts, Impl, words
from explorer.cli.options import Change, Debug, Modules, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import emit, width


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
    form: Annotated[Format, typer.Option("--format", help="What to print: table or json.")] = Format.table,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Time a block of one blueprint against a block of another, in the same rounds, and say what that shows."""
    with exit_codes(debug):
        from explorer.errors import UsageError
        from explorer.report.json_text import json_text
        from explorer.report.versus import versus_text
        from explorer.study.measuring import Measuring
        from explorer.study.versus import versus

        if form not in (Format.table, Format.json):
            raise UsageError(f"latency prints table or json, not {form.value}; `run --measure` prints the others")
        a, b = (loaded(source, modules, axis=None, change=change, workload=workload) for source in (one, other))
        measuring = Measuring(effort=effort.value, device=device, impls=words(impl), cache=cache)
        with Progress() as progress:
            result = versus(a, b, measuring, progress, block)
        document = result.to_dict()
        emit(json_text(document) if form is Format.json else versus_text(document, width()), utf8=form is Format.json)
        sys.exit(1 if result.failed else 0)
