"""Failures that leave a CUDA device of no use; the device is pretended."""

import pytest
import torch

from explorer.latency.failure import DeviceLost, Failure, attempt


@pytest.fixture
def cuda(monkeypatch):
    """Two devices, of which the second is in use; returns what waiting for each of them raises."""
    broken = {}

    def synchronize(index):
        assert index == 1, "this would make a context on a device that nobody uses"
        if index in broken:
            raise broken[index]

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2**20 * index)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    return broken


def fails():
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")


def test_a_failure_that_leaves_the_device_well_costs_one_candidate(cuda):
    found = attempt(fails, "measuring")
    assert isinstance(found, Failure)
    assert found.reason == "RuntimeError while measuring: CUDA error: an illegal memory access was encountered"


def test_a_failure_after_which_the_device_answers_nothing_ends_the_process(cuda):
    """Every later candidate would fail with the same error, and be blamed for it."""
    cuda[1] = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(DeviceLost, match="an illegal memory access was encountered; after that the device answers"):
        attempt(lambda: attempt(fails, "copying"), "building")
