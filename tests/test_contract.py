"""The plugin contract over every installed component, ours or not: the checks that `explorer.testing` gives away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.testing import Case, contract_cases


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Toy tensors: threads of several workers would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=[pytest.mark.slow] * case.slow) for case in contract_cases()],
)
def test_contract(case: Case) -> None:
    case.check()


def test_every_installed_package_is_healthy() -> None:
    registry = load_registry()
    assert [str(broken) for broken in registry.broken] == []
    assert all(registry.components(kind) for kind in KINDS)
