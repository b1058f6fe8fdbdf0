"""`explorer blueprint check | show | schema | import`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.folder import write
from explorer.cli.installed import installed, loaded
from explorer.cli.options import Axis, Change, Debug, Modules, Source, Workload
from explorer.cli.screen import emit, width

if TYPE_CHECKING:
    from explorer.blueprint.blueprint import Blueprint

app = typer.Typer(help="Check, show and import blueprints.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    blueprint: Source,
    axis: Axis = None,
    change: Change = None,
    workload: Workload = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Refuse more combinations than this.")] = 100_000,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Check a blueprint: all its combinations are built without weights, nothing is counted."""
    with exit_codes(debug):
        from explorer.report.units import plural
        from explorer.study.check import check as checked

        found = checked(loaded(blueprint, modules, axis=axis, change=change, workload=workload), limit)
        counts = f"{plural(found.rows, 'row')}, {found.skipped:,} skipped, {found.merged:,} merged"
        emit(f"{blueprint}: ok; {plural(found.product, 'combination')}: {counts}\n")


@app.command()
def show(
    blueprint: Source,
    axis: Axis = None,
    change: Change = None,
    workload: Workload = None,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Print the modules of the model instead, with what each takes under the first workload."
        ),
    ] = False,
    depth: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="With --tree: how deep; 0 is the model alone. Default: all.")
    ] = None,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Print a blueprint with every default filled in, as YAML that loads again."""
    with exit_codes(debug):
        from explorer.errors import UsageError

        if depth is not None and not tree:
            raise UsageError("--depth is how deep --tree goes: give both, or neither")
        found = loaded(blueprint, modules, axis=axis, change=change, workload=workload)
        if tree:
            emit(_tree(found, depth))
            return
        from explorer.blueprint.written import written
        from explorer.cli.yaml_text import yaml_text

        emit(yaml_text(written(found)), utf8=True)


def _tree(blueprint: "Blueprint", depth: int | None) -> str:
    from explorer.cost.tree import tree
    from explorer.report.tree import tree_text

    root, workload = tree(blueprint.plan(), blueprint.workloads[0], blueprint.registry.cost_rules)
    return tree_text(blueprint.name, root, workload.to_dict(), width=width(), depth=depth)


@app.command()
def schema(modules: Modules = None, debug: Debug = False) -> None:
    """Print the JSON Schema of blueprints, for the components that are installed."""
    with exit_codes(debug):
        from explorer.blueprint import json_schema

        emit(json.dumps(json_schema(installed(modules)), indent=2) + "\n", utf8=True)


@app.command("import")
def import_config(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG_JSON", help="config.json of a Hugging Face model, its folder, or - (stdin)."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the blueprint to a file.")] = None,
    debug: Debug = False,
) -> None:
    """Print the blueprint of a Hugging Face config. Nothing is downloaded; what is not understood is an error."""
    with exit_codes(debug):
        from explorer.huggingface.commented_yaml import commented_yaml
        from explorer.huggingface.import_config import read_import
        from explorer.huggingface.json_source import read_config

        source = read_config(config)
        text = commented_yaml(read_import(source), str(source.home))
        if out is None:
            emit(text, utf8=True)
        else:
            write(out.parent, {out.name: text})
