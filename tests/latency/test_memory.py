"""What means out of memory, and how much there is."""

import pytest
import torch

from explorer.errors import is_out_of_memory
from explorer.latency import memory
from explorer.latency.memory import free_bytes


@pytest.mark.parametrize(
    ("error", "means_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_which_errors_mean_out_of_memory(error, means_it):
    assert is_out_of_memory(error) is means_it


def test_torch_says_so_on_this_machine():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50)
    assert is_out_of_memory(raised.value)


def test_free_bytes_of_the_cpu_are_plausible():
    free = free_bytes("cpu")
    assert free is None or 0 < free < 2**50


def test_the_tightest_limit_counts(tmp_path, monkeypatch):
    meminfo, limit, used = (tmp_path / name for name in ("meminfo", "memory.max", "memory.current"))
    meminfo.write_text("MemTotal:  3000 kB\nMemAvailable:  2000 kB\n")
    used.write_text("100\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_CGROUPS", ((limit, used),))
    assert free_bytes("cpu") == 2000 * 1024  # no cgroup here
    limit.write_text("max\n")
    assert free_bytes("cpu") == 2000 * 1024
    limit.write_text("1500\n")
    assert free_bytes("cpu") == 1400
    used.with_name("memory.stat").write_text("anon 20\ninactive_file 70\nactive_file 5\n")
    assert free_bytes("cpu") == 1470
    used.with_name("memory.stat").write_text("inactive_file 0\ntotal_inactive_file 900\n")  # more than was just in use
    assert free_bytes("cpu") == 1500
    meminfo.unlink()
    limit.unlink()
    assert free_bytes("cpu") is None
