"""Made-up packages beside the installed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Component, Origin, Package, Registry
from explorer.testing import Case, ContractFailure, contract_cases

ORIGIN = Origin("lab_parts", "lab-parts", "0.3")


def registry_with(components: Mapping[str, Mapping[str, Any]]) -> Registry:
    """The installed components and those of package `lab_parts`, {kind: {name: constructor}}."""
    made = tuple(
        Component(KINDS[kind], name, constructor, ORIGIN)
        for kind, table in components.items()
        for name, constructor in table.items()
    )
    return Registry((*load_registry().packages, Package(ORIGIN, made)))


@pytest.fixture
def cases() -> Callable[..., list[Case]]:
    """`cases({kind: {name: constructor}}, parameters=None)`: the contract over a made-up package."""

    def made(components: Mapping[str, Mapping[str, Any]], parameters: Any = None) -> list[Case]:
        return contract_cases("lab_parts", parameters=parameters, registry=registry_with(components))

    return made


@pytest.fixture
def fails() -> Callable[[str, Any, str, str], None]:
    """`fails(kind, constructor, check, message)`: the check fails and says who, expected what, got what."""

    def failed(kind: str, component: Any, check: str, message: str) -> None:
        made = contract_cases("lab_parts", registry=registry_with({kind: {"broken": component}}))
        (case,) = (case for case in made if case.rule.name == check)
        with pytest.raises(ContractFailure) as failure:
            case.check()
        text = str(failure.value)
        assert text.startswith(f"{kind} 'broken' of lab-parts 0.3 (lab_parts): {check}: expected "), text
        assert message in text
        assert "\n  came out: " in text

    return failed
