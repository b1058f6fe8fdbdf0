"""The commands put together. Whatever is slow to import stays inside the commands: `--help` answers at once."""

import io
import sys
import warnings
from typing import Annotated

import typer

from explorer import __version__
from explorer.cli import blueprint, plugins
from explorer.cli.bare import command_with
from explorer.cli.calibrate import calibrate
from explorer.cli.compare import compare
from explorer.cli.doctor import doctor
from explorer.cli.latency import latency
from explorer.cli.run import BARE, run

app = typer.Typer(
    name="explorer",
    help="What a swapped component changes in a Transformer: parameters, FLOPs, KV cache and latency.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich would cost a tenth of a second
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=command_with(BARE))(run)
app.command("latency")(latency)
app.command("calibrate")(calibrate)
app.command("compare")(compare)
app.add_typer(plugins.app, name="plugins")
app.add_typer(blueprint.app, name="blueprint")
app.command("doctor")(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"explorer {__version__}")
        raise typer.Exit


@app.callback()
def explorer(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What a swapped component changes in a Transformer: parameters, FLOPs, KV cache and latency."""


def main() -> None:
    """Run the command line; exit codes as in `explorer.cli.failures`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Δ gets "?", not a UnicodeEncodeError
    before, warnings.formatwarning = warnings.formatwarning, _one_line
    try:
        app(prog_name="explorer")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        warnings.formatwarning = before


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A component's warning without the line of code that gave it, which says nothing to a user."""
    return f"warning: {message}\n"
