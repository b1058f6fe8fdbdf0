"""The peak of one call: what it holds at once, whatever was freed before it."""

from functools import partial

import pytest
import torch

from explorer import build
from explorer.latency import peak
from explorer.latency.peak import Peak, peak_of

MIB = 2**20


def full(mib):
    return torch.ones(mib * MIB, dtype=torch.uint8)


linux = pytest.mark.skipif(not peak._STATUS.exists(), reason="the high-water mark of a process is Linux's")


@linux
@pytest.mark.parametrize("freed", [0, 512])
def test_a_tensor_that_the_call_makes(freed):
    full(freed)
    found = peak_of(lambda: lambda: full(256), "cpu")
    assert found.bytes == pytest.approx(256 * MIB, rel=0.05)
    assert found == Peak(found.bytes, method="high-water mark of the process")


@linux
def test_small_pieces_that_were_freed_hide_nothing():
    kept = [torch.ones(MIB // 8) for _ in range(256)][::2]
    found = peak_of(lambda: lambda: [torch.ones(MIB // 8) for _ in range(256)], "cpu")
    assert found.bytes == pytest.approx(128 * MIB, rel=0.05)
    assert len(kept) == 128


@linux
def test_what_was_built_counts_and_what_building_took_for_a_moment_does_not():
    def make():
        weights = full(64)
        full(512)
        return lambda: weights.max()

    assert peak_of(make, "cpu").bytes == pytest.approx(64 * MIB, rel=0.05)


@linux
def test_a_call_that_takes_nothing():
    assert peak_of(lambda: lambda: None, "cpu").bytes < MIB


@linux
def test_a_training_step_takes_more_than_a_prompt():
    def make(train):
        block = build({"dim": 128, "heads": 4}, "block", device="cpu").train(train)
        x = torch.randn(8, 256, 128, requires_grad=train)
        return (lambda: block(x).sum().backward()) if train else torch.no_grad()(lambda: block(x))

    x_bytes = 8 * 256 * 128 * 4
    assert x_bytes < peak_of(partial(make, False), "cpu").bytes < peak_of(partial(make, True), "cpu").bytes


def test_a_system_that_keeps_no_mark_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(peak, "_STATUS", tmp_path / "status")
    assert peak_of(lambda: lambda: None, "cpu") == Peak(
        None, reason="only Linux tells how much memory a process took at most"
    )


@linux
def test_a_mark_that_cannot_be_reset_is_not_read(monkeypatch, tmp_path):
    monkeypatch.setattr(peak, "_CLEAR_REFS", tmp_path / "no" / "clear_refs")
    found = peak_of(lambda: lambda: None, "cpu")
    assert found.bytes is None
    assert found.reason.startswith("the high-water mark cannot be reset: ")


def test_a_device_without_a_peak_says_so():
    assert peak_of(lambda: lambda: None, "mps") == Peak(None, reason="the allocator of mps keeps no peak")


class Allocator:
    """A device's caching allocator: takes 2 MiB pages of the device, and keeps them until it is emptied."""

    def __init__(self):
        self.allocated = self.reserved = self.most = self.most_reserved = 0

    def take(self, size):
        self.allocated += size
        self.reserved = max(self.reserved, -(-self.allocated // (2 * MIB)) * 2 * MIB)
        self.most = max(self.most, self.allocated)
        self.most_reserved = max(self.most_reserved, self.reserved)

    def free(self, size):
        self.allocated -= size

    def empty_cache(self):
        self.reserved = -(-self.allocated // (2 * MIB)) * 2 * MIB

    def reset_peak_memory_stats(self, device):
        self.most, self.most_reserved = self.allocated, self.reserved

    def synchronize(self, device):
        pass

    def memory_allocated(self, device):
        return self.allocated

    def memory_reserved(self, device):
        return self.reserved

    def max_memory_allocated(self, device):
        return self.most

    def max_memory_reserved(self, device):
        return self.most_reserved


def test_the_allocator_of_a_device(monkeypatch):
    """Others hold 4 MiB and have freed 40; 5 of weights and 3 for a moment are 8, as much as the device gave for it."""
    device = Allocator()
    monkeypatch.setattr(peak, "_touch", lambda device: None)
    monkeypatch.setattr(torch, "get_device_module", lambda where: device)
    device.take(44 * MIB)
    device.free(40 * MIB)

    def make():
        device.take(20 * MIB)  # for a moment
        device.free(15 * MIB)

        def call():
            device.take(3 * MIB)
            device.free(3 * MIB)

        return call

    found = peak_of(make, "cuda")
    assert found == Peak(8 * MIB, 8 * MIB, method="max_memory_allocated")
