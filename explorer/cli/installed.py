"""Plugin packages and blueprints for one call, with a warning for what is installed but not usable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from explorer.blueprint.blueprint import Blueprint
    from explorer.registry import Component, Registry
    from explorer.registry.registry import CostRule

Words = Sequence[str] | None


def installed(modules: Words) -> "Registry":
    """All plugin packages and the modules of ``-p``; broken packages, doubled names and cost rules are warnings.

    Raises: PluginError where a module of ``-p`` is broken or nothing is installed.
    """
    from explorer.registry import load_registry

    registry = load_registry(tuple(modules or ()))
    _warn(registry)
    return registry


def loaded(source: str, modules: Words, *, axis: Words, change: Words, workload: Words) -> "Blueprint":
    """The blueprint that the arguments of a command name.

    Raises: BlueprintError, UsageError, PluginError.
    """
    import explorer
    from explorer.registry import load_registry

    # Without -p the file is read before any plugin: importing torch would delay the news that there is no such file.
    registry = load_registry(tuple(modules)) if modules else None
    blueprint = explorer.load(source, registry=registry, axes=axis or (), sets=change or (), workloads=workload or ())
    _warn(blueprint.registry)
    if blueprint.encoding != "UTF-8":
        # A wrong guess garbles names; only the writer can tell.
        text = f"note: {blueprint.path} is not UTF-8 and was read as {blueprint.encoding}; save it as UTF-8"
        typer.echo(text, err=True)
    return blueprint


def _warn(registry: "Registry") -> None:
    for broken in registry.broken:
        typer.echo(f"warning: {broken}", err=True)
    for line in clash_lines(registry):
        typer.echo(f"warning: {line}", err=True)


def clash_lines(registry: "Registry") -> list[str]:
    """What several packages offer: names of components, and cost rules for one operator."""
    rivals = [rule for rule in registry.cost_rules.values() if rule.rivals]
    return [*map(clash_text, registry.clashes), *map(rival_text, rivals)]


def clash_text(clash: Sequence["Component"]) -> str:
    """Who offers one name, and how to choose."""
    offers = " and ".join(f"{component.origin} ({component.package})" for component in clash)
    names = " or ".join(f"{component.package}:{component.name}" for component in clash)
    return f"{clash[0].kind.name} '{clash[0].name}' is offered by {offers}; write {names}"


def rival_text(rule: "CostRule") -> str:
    """Who has a rule for one operator, and what to do."""
    rules = " and ".join(f"{one.origin} ({one.package})" for one in (rule, *rule.rivals))
    return f"cost rule for '{rule.op}' is offered by {rules}; uninstall all but one"
