"""`explorer compare`: several blueprints or runs as one table."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.formats import Format, pieces
from explorer.cli.installed import Words, loaded
from explorer.cli.options import Change, Debug, Modules, Workload
from explorer.cli.progress import Progress
from explorer.cli.screen import emit


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="A B ...", help="YAML files, names of published blueprints, or folders of `run --out`."),
    ],
    change: Change = None,
    workload: Workload = None,
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.table,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Set blueprints, or results of earlier runs, side by side; of up to 6 rows the first is the baseline."""
    with exit_codes(debug):
        from explorer.errors import UsageError
        from explorer.study.comparing import compare as compared
        from explorer.study.comparing import join, read_run

        if len(sources) < 2:
            raise UsageError("compare takes two blueprints or runs at least")
        runs = {source: read_run(Path(source)) for source in sources if Path(source).is_dir()}
        written = [source for source in sources if source not in runs]
        _refuse_to_change(runs, written, {"--set": change, "--workload": workload})
        blueprints = [loaded(source, modules, axis=None, change=change, workload=workload) for source in written]
        with Progress() as progress:
            counted = compared(blueprints, progress)
            documents = [runs[source] if source in runs else next(counted) for source in sources]
        result = join(documents)
        emit(pieces(result, form), utf8=form is not Format.table)
        sys.exit(1 if result.failed else 0)


def _refuse_to_change(runs: Collection[str], written: Collection[str], options: Mapping[str, Words]) -> None:
    """Say that options change no finished run.

    Raises: UsageError where there is nothing that they change.
    """
    from explorer.errors import UsageError

    given = [option for option, texts in options.items() if texts]
    if not given or not runs:
        return
    names = " and ".join(given)
    if not written:
        raise UsageError(
            f"{names}: a finished run cannot be changed, and there is no blueprint among {', '.join(runs)}"
        )
    typer.echo(f"note: {names} changed {', '.join(written)}, not the finished runs {', '.join(runs)}", err=True)
