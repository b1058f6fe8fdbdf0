"""Fixtures of virtual time, an effort that is small, and a heap that is."""

from __future__ import annotations

import gc

import pytest

from explorer.latency.effort import Effort
from tests.latency.virtual import VirtualDevice, VirtualTime


@pytest.fixture
def time():
    return VirtualTime()


@pytest.fixture
def virtual_device(time):
    return VirtualDevice(time)


@pytest.fixture
def effort():
    """20 samples of one call each; warm after 30 ms at the earliest."""
    return Effort(
        rounds=20, fewest_rounds=20, most_rounds=40, sample_ms=1, warm_ms=30, warm_limit_ms=1_000, budget_ms=10_000
    )


@pytest.fixture(autouse=True)
def small_heap():
    """Measuring collects garbage when a candidate leaves; what other tests left behind is not part of that."""
    gc.freeze()
    yield
    gc.unfreeze()
