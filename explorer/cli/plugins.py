"""`explorer plugins list | show`."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.options import Debug, Modules
from explorer.cli.screen import emit, width

if TYPE_CHECKING:
    from explorer.cost.instance import Sizes
    from explorer.registry import Component, Registry

app = typer.Typer(help="Installed components and where they come from.", no_args_is_help=True, rich_markup_mode=None)


class ListFormat(str, Enum):
    """What `plugins list --format` takes."""

    table = "table"
    md = "md"


@app.command("list")
def list_(
    form: Annotated[
        ListFormat, typer.Option("--format", help="md: what each computes, as Markdown.")
    ] = ListFormat.table,
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """List components, the packages they come from, and packages that are broken."""
    with exit_codes(debug):
        from explorer.cli.installed import clash_lines
        from explorer.registry import load_registry

        registry = load_registry(tuple(modules or ()))
        if form is ListFormat.md:
            from explorer.report.component_list import component_list

            emit(component_list(registry), utf8=True)
            return
        blocks = ["\n".join(_components(registry)), "\n".join(_packages(registry))]
        blocks += ["\n".join(_broken(registry))] if registry.broken else []
        doubled = [line for clash in clash_lines(registry) for line in _wrapped(f"warning: {clash}")]
        blocks += ["\n".join(doubled)] if doubled else []
        emit("\n\n".join(blocks) + "\n")


def _components(registry: "Registry") -> list[str]:
    """Each with its package; of what distribution that is stands once, below."""
    from explorer.registry.kinds import KINDS

    found = [component for kind in KINDS for component in registry.components(kind)]
    return _table(
        ("kind", [component.kind.name for component in found]),
        ("name", [component.name for component in found]),
        ("package", [component.package for component in found]),
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
    """Headers above cells. Where the last column has no room its cells stand below the rows: a path stays whole."""
    from explorer.report.grid import GAP, GridColumn, grid, widest

    made = [GridColumn(h, cells, widest([h, *cells])) for h, cells in columns]
    if sum(column.width + GAP for column in made) - GAP <= width():
        return [line.text for line in grid(made)]
    *kept, last = made
    below = [_wrapped(f"  {cell}") for cell in last.cells]
    return [text for line in grid(kept) for text in (line.text, *([] if line.row is None else below[line.row]))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="rmsnorm, norm:rmsnorm (a kind) or PACKAGE:rmsnorm (a package); with values gqa:kv_heads=8, "
            "which its cost is then of."
        ),
    ],
    dim: Annotated[int, typer.Option(min=1, help="Width of the block, for the cost.")] = 4096,
    heads: Annotated[int, typer.Option(min=1, help="Heads of the block, for the cost.")] = 32,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the stack, where the cost depends on it.")] = 32,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of one sequence, for the cost.")] = 2048,
    dtype: Annotated[str, typer.Option(help="Of weights, activations and cache.")] = "bfloat16",
    modules: Modules = None,
    debug: Debug = False,
) -> None:
    """Describe a component: what it computes, its source and parameters, and what one of it costs."""
    with exit_codes(debug):
        from explorer.cli.installed import installed
        from explorer.cost.instance import Sizes

        registry = installed(modules)
        sizes = Sizes(dim=dim, heads=heads, layers=layers, tokens=tokens, dtype=dtype)
        found, values = _matching(registry, name)
        texts = ["\n".join(_description(component, values, sizes, registry)) for component in found]
        emit("\n\n".join(texts) + "\n")


def _matching(registry: "Registry", text: str) -> tuple[list["Component"], list[str]]:
    """The components of a name, and the values written behind it."""
    from explorer.blueprint.options import split
    from explorer.errors import UsageError, did_you_mean
    from explorer.registry.kinds import KINDS

    parts = split(text, ":")
    names = list(itertools.takewhile(lambda part: "=" not in part, parts))
    prefix, bare = ":".join(names[:-1]), names[-1] if names else ""
    everything = [component for kind in KINDS for component in registry.components(kind)]
    found = [c for c in everything if c.name == bare and prefix in ("", c.kind.name, c.package)]
    if not found:
        guess = did_you_mean(bare, {component.name for component in everything})
        raise UsageError(
            f"no component is called {':'.join(names)!r}" + (f"; {guess}" if guess else "; see `explorer plugins list`")
        )
    return found, parts[len(names) :]


def _description(component: "Component", values: Sequence[str], sizes: "Sizes", registry: "Registry") -> Iterator[str]:
    from explorer.cost.instance import instance_cost
    from explorer.errors import RefusedError
    from explorer.report.component_text import describe, describe_cost, how_to_cost, required

    yield from describe(component, width())
    if component.constructor is None:
        return
    if required(component) and not values:
        yield how_to_cost(component)
        return
    written = ":".join([component.label, *values])
    try:
        cost = instance_cost(component.kind.name, written, sizes, registry)
    except RefusedError as error:
        # A size that the block cannot have says nothing against the component.
        yield f"  cost of one {written}: none at these sizes: {error.message}"
        return
    yield from describe_cost(written, cost, sizes, width())
