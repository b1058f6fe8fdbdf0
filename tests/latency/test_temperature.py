"""Warm, rotating and flushed: how many copies, and why not. Public case C10."""

import pytest
import torch

from explorer.errors import UsageError
from explorer.latency import last_cache
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.temperature import Room, Temperature, flusher, temperature

MIB = 2**20
ROOM = Room(last_cache=8 * MIB, free=4096 * MIB)


@pytest.mark.parametrize(
    ("mode", "phase", "cache"),
    [
        ("auto", "decode", "cold weights"),
        ("auto", "prefill", "warm"),
        ("auto", "train", "warm"),
        ("warm", "decode", "warm"),
        ("rotate", "prefill", "cold weights"),
        ("flush", "decode", "cold"),
    ],
)
def test_the_mode_of_a_phase(mode, phase, cache):
    assert temperature(mode, phase, MIB, ROOM).cache == cache


@pytest.mark.parametrize(
    ("size", "touched", "copies"),
    [
        (MIB, None, 32),  # 32 MiB are 4 times the cache
        (MIB // 2, None, 64),
        (3 * MIB, None, 11),
        (32 * MIB, None, 1),  # one copy is too large to stay in the cache
        (10 * MIB, 2 * MIB, 16),  # a mixture of experts of which one call reads a fifth
        (2 * MIB, 10 * MIB, 16),  # more than there is cannot be read
    ],
)
def test_the_copies_together_touch_four_times_the_cache(size, touched, copies):
    assert temperature("rotate", "decode", size, ROOM, touched=touched) == Temperature("cold weights", copies)


@pytest.mark.parametrize(
    ("mode", "size", "room", "note"),
    [
        ("rotate", MIB // 4, ROOM, "warm: 4 x 8 MiB of last-level cache need 128 copies of the weights, more than 64"),
        (
            "rotate",
            MIB,
            Room(8 * MIB, 100 * MIB),  # 31 more copies are more than a quarter of it
            "warm: 4 x 8 MiB of last-level cache need 32 copies of the weights, which do not fit in memory",
        ),
        ("flush", MIB, Room(8 * MIB, 100 * MIB), "warm: 4 x 8 MiB of last-level cache do not fit in memory"),
        ("rotate", 0, ROOM, "warm: it has no weights of its own"),
        ("rotate", MIB, Room(None, None), "warm: the size of the last-level cache of this device is not known"),
        ("flush", MIB, Room(None, None), "warm: the size of the last-level cache of this device is not known"),
    ],
)
def test_where_it_cannot_be_cold_it_is_warm_and_says_why(mode, size, room, note):
    assert temperature(mode, "decode", size, room) == Temperature("warm", 1, (note,))


def test_memory_that_nobody_tells_of_is_no_limit():
    assert temperature("rotate", "decode", MIB, Room(8 * MIB, None)).copies == 32


def test_an_unknown_mode_lists_the_known():
    with pytest.raises(UsageError, match="cache mode 'cold' is unknown; it is one of: auto, warm, rotate, flush"):
        temperature("cold", "decode", MIB, ROOM)


def test_flushing_reads_and_writes_four_times_the_cache():
    flush = flusher("cpu", 1024)
    words = flush()
    assert words.nbytes == 4 * 1024
    assert words.eq(-1).all()
    flush()
    assert words.eq(0).all()


@pytest.fixture
def cpus(tmp_path, monkeypatch):
    """Writes caches as Linux lists them: {cpu: [(type, level, size, shared), ...]}; all these CPUs may be used."""

    def write(caches):
        for cpu, listed in caches.items():
            for index, cache in enumerate(listed):
                folder = tmp_path / f"cpu{cpu}/cache/index{index}"
                folder.mkdir(parents=True)
                for name, text in zip(("type", "level", "size", "shared_cpu_list"), cache, strict=True):
                    (folder / name).write_text(f"{text}\n")
        monkeypatch.setattr(last_cache, "_CPUS", tmp_path)
        monkeypatch.setattr(last_cache, "_usable", lambda: sorted(caches))

    return write


L1, L2 = ("Data", 1, "32K", "0"), ("Unified", 2, "1024K", "0")


@pytest.mark.parametrize(
    ("caches", "size"),
    [
        ({0: [L1, L2, ("Unified", 3, "32M", "0-1")], 1: [L1, L2, ("Unified", 3, "32M", "0-1")]}, 32 * MIB),
        ({0: [("Unified", 3, "32M", "0")], 8: [("Unified", 3, "32M", "8")]}, 64 * MIB),  # two of them, one for each
        ({0: [L1, L2, ("Instruction", 3, "1G", "0")]}, MIB),
        ({0: [("Unified", 3, "266240K", "0-1")]}, 260 * MIB),
        ({0: [("Unified", 3, "", "0")]}, None),
        ({0: []}, None),
        ({}, None),
    ],
)
def test_the_last_cache_of_cpus(cpus, caches, size):
    cpus(caches)
    assert last_cache_bytes("cpu") == size


def test_the_last_cache_of_cuda_is_its_l2(monkeypatch):
    class Properties:
        L2_cache_size = 50 * MIB

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert last_cache_bytes("cuda:1") == 50 * MIB


def test_of_other_devices_it_is_not_known():
    assert last_cache_bytes("mps") is None
