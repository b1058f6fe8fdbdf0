"""`explorer plugins list | show`."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.options import Debug, Modules
from explorer.cli.screen import emit

if TYPE_CHECKING:
    from explorer.registry import Component, Registry

app = typer.Typer(help="Installed components and where they come from.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(modules: Modules = None, debug: Debug = False) -> None:
    """List components, the packages they come from, and packages that are broken."""
    with exit_codes(debug):
        from explorer.cli.installed import clash_text
        from explorer.registry import load_registry

        registry = load_registry(tuple(modules or ()))
        blocks = ["\n".join(_components(registry)), "\n".join(_packages(registry))]
        blocks += ["\n".join(_broken(registry))] if registry.broken else []
        blocks += ["\n".join(f"warning: {clash_text(clash)}" for clash in registry.clashes)] if registry.clashes else []
        emit("\n\n".join(blocks) + "\n")


def _components(registry: "Registry") -> list[str]:
    from explorer.registry.kinds import KINDS

    found = [component for kind in KINDS for component in registry.components(kind)]
    return _table(
        ("kind", [component.kind.name for component in found]),
        ("name", [component.name for component in found]),
        ("package", [component.package for component in found]),
        ("distribution", [str(component.origin) for component in found]),
    )


def _packages(registry: "Registry") -> list[str]:
    return _table(
        ("package", [package.name for package in registry.packages]),
        ("distribution", [str(package.origin) for package in registry.packages]),
        ("location", [package.location for package in registry.packages]),
    )


def _broken(registry: "Registry") -> list[str]:
    return _table(
        ("broken package", [broken.name for broken in registry.broken]),
        ("distribution", [str(broken.origin) for broken in registry.broken]),
        ("reason", [" ".join(broken.reason.split()) for broken in registry.broken]),
    )


def _table(*columns: tuple[str, Sequence[str]]) -> list[str]:
    """Headers above cells; the last column may run over the edge: a path stays in one piece."""
    from explorer.report.grid import GridColumn, grid, widest

    return [line.text for line in grid([GridColumn(h, cells, widest([h, *cells])) for h, cells in columns])]


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="rmsnorm, norm:rmsnorm (a kind) or PACKAGE:rmsnorm (a package).")],
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Describe a component: what it computes, where it comes from, its parameters."""
    with exit_codes(debug):
        from explorer.cli.installed import installed

        found = _matching(installed(modules), name)
        emit("\n\n".join("\n".join(_description(component)) for component in found) + "\n")


def _matching(registry: "Registry", name: str) -> list["Component"]:
    from explorer.errors import UsageError, did_you_mean
    from explorer.registry.kinds import KINDS

    everything = [component for kind in KINDS for component in registry.components(kind)]
    prefix, _, bare = name.rpartition(":")
    found = [c for c in everything if c.name == bare and prefix in ("", c.kind.name, c.package)]
    if not found:
        guess = did_you_mean(bare, {component.name for component in everything})
        raise UsageError(
            f"no component is called {name!r}" + (f"; {guess}" if guess else "; see `explorer plugins list`")
        )
    return found


def _description(component: "Component") -> Iterator[str]:
    yield f"{component.kind.name} {component.name}, from {component.package} ({component.origin})"
    for paragraph in component.doc.split("\n\n"):
        yield ""
        yield from (textwrap.indent(line, "  ") for line in paragraph.splitlines())
    yield ""
    schema = component.schema
    parameters = list(schema.parameters.values())
    yield f"  from the block: {', '.join(schema.picks) or 'nothing'}"
    yield f"  parameters:{'' if parameters else ' none'}"
    for parameter in parameters:
        default = "required" if parameter.required else f"default {parameter.default_text}"
        yield f"    {parameter.name}: {parameter.type_text} ({default})"
    required = ", ".join(f"{parameter.name}: ..." for parameter in parameters if parameter.required)
    value = f"{{{component.name}: {{{required}}}}}" if required else component.name
    yield f"  in a blueprint: {component.kind.name}: {value}"
