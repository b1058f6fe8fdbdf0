"""Which devices there are, what they are called, and what is stored beside a number."""

import json

import pytest
import torch

from explorer.errors import UsageError
from explorer.latency import device as device_module
from explorer.latency.device import available_devices, device_name, environment, resolve_device


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("text", "device"),
    [(None, "cuda"), ("cpu", "cpu"), ("cpu:0", "cpu"), ("cuda", "cuda"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")],
)
def test_a_device_of_this_machine(two_gpus, text, device):
    assert resolve_device(text) == device


def test_without_an_accelerator_the_cpu(no_gpu):
    assert available_devices() == ("cpu",)
    assert resolve_device(None) == "cpu"


@pytest.mark.parametrize("text", ["cuda:2", "mps", "meta", "cpu:3", "", "gpu", "cuda:x", "cuda:-1", "/dev/null"])
def test_another_device_lists_what_there_is(two_gpus, text):
    with pytest.raises(UsageError, match=f"device '{text}' is not on this machine; it has: cpu, cuda:0, cuda:1"):
        resolve_device(text)


def test_cuda_without_cuda_is_refused(no_gpu):
    with pytest.raises(UsageError, match=r"^device 'cuda' is not on this machine; it has: cpu$"):
        resolve_device("cuda")


def test_a_misspelt_device_gets_a_guess(two_gpus):
    with pytest.raises(UsageError, match=r"did you mean 'cuda:1'\?"):
        resolve_device("cdua:1")


CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"


def test_the_model_of_a_cpu(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUINFO)
    monkeypatch.setattr(device_module, "_CPUINFO", cpuinfo)
    assert device_name("cpu") == "Intel(R) Xeon(R) Platinum 8480+"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert device_name("cpu")
    cpuinfo.unlink()
    assert device_name("cpu")


def test_the_version_of_the_driver(tmp_path, monkeypatch):
    version = tmp_path / "version"
    monkeypatch.setattr(device_module, "_NVIDIA", version)
    assert device_module._nvidia_driver() is None
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jan 24 2025\nGCC version: 12\n")
    assert device_module._nvidia_driver() == "570.86.15"


def test_the_environment_is_stored_with_a_number():
    stored = environment("cpu")
    assert json.loads(json.dumps(stored)) == stored
    assert stored["torch"] == torch.__version__
    assert stored["threads"] == torch.get_num_threads()
    assert stored["device_name"] == device_name("cpu")
    assert set(stored["precision"]) >= {"float32_matmul", "cudnn_benchmark"}
    assert set(stored["sdpa_backends"]) == {"flash", "efficient", "cudnn", "math"}
