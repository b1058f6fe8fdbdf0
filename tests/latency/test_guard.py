"""What the guards see: fake files, a fake clock and a fake NVML. Nothing here depends on this machine being quiet."""

import os
import sys
import types
from hashlib import sha256
from threading import Thread

import pytest

from explorer.errors import MeasureError
from explorer.latency import guard as guard_module
from explorer.latency.guard import guard_for, watching
from explorer.latency.watching import clocks as clocks_module
from explorer.latency.watching import nvml as nvml_module
from explorer.latency.watching.clocks import clocks
from explorer.latency.watching.cuda import CudaGuard
from explorer.latency.watching.nvml import Nvml, open_nvml
from explorer.latency.watching.pressure import PressureGuard, keeps_account, waited_us
from explorer.latency.watching.switches import SwitchesGuard, involuntary
from tests.latency.virtual import ScriptedGuard


@pytest.fixture
def pressure(tmp_path):
    return Pressure(tmp_path / "cpu")


class Pressure:
    """The kernel's file; its total is in microseconds."""

    def __init__(self, path):
        self.path = path
        self.write(354226837)

    def write(self, total):
        self.total = total
        some = f"some avg10=98.65 avg60=97.10 avg300=66.06 total={total}"
        self.path.write_text(f"{some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")


PRESSED = "CPU pressure: a task waited for a CPU in {} of the time"


@pytest.mark.parametrize(
    ("waited_ms", "elapsed_ms", "reason"),
    [
        (0, 60, None),
        (5.9, 60, None),
        (6.1, 60, PRESSED.format("10%")),
        (60, 60, PRESSED.format("100%")),
        (61, 60, PRESSED.format("100%")),  # the kernel's clock is not ours
        (0, 0, None),
        (1, 0, PRESSED.format("100%")),
    ],
)
def test_pressure(pressure, time, waited_ms, elapsed_ms, reason):
    guard = PressureGuard(pressure.path, now=lambda: time.seconds)
    for _ in range(2):  # each round begins anew
        time.sleep(1000)
        pressure.write(pressure.total + 900_000)  # between the rounds
        guard.start()
        time.sleep(elapsed_ms)
        pressure.write(pressure.total + int(1000 * waited_ms))
        assert guard.stop() == reason


@pytest.mark.parametrize("text", [None, "", "full avg10=0.00 total=7\n", "some avg10=0.00\n"])
def test_a_kernel_without_an_account(tmp_path, text):
    path = tmp_path / "cpu"
    assert not keeps_account(path)
    if text is not None:
        path.write_text(text)
        assert not keeps_account(path)
        with pytest.raises(ValueError, match=r"some|avg10"):
            waited_us(path)


@pytest.mark.parametrize(
    ("taken", "elapsed_ms", "reason"),
    [
        (0, 60, None),
        (5, 60, None),
        (7, 60, "context switches: the CPU was taken away 7 times in 60 ms"),
        (0, 0, None),
        (1, 0, "context switches: the CPU was taken away 1 times in 0 ms"),
    ],
)
def test_switches(time, taken, elapsed_ms, reason):
    count = [41]
    guard = SwitchesGuard(lambda: count[0], now=lambda: time.seconds)
    for _ in range(2):
        count[0] += 100
        guard.start()
        time.sleep(elapsed_ms)
        count[0] += taken
        assert guard.stop() == reason


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system keeps no thread to one CPU")
def test_threads_that_share_a_cpu_take_it_from_each_other():
    everywhere = os.sched_getaffinity(0)
    other = Thread(target=lambda: sha256(bytes(2**26)))  # some tenths of a second, without Python's lock
    os.sched_setaffinity(0, {min(everywhere)})  # this thread, and those that it begins
    try:
        before = involuntary()
        other.start()
        while other.is_alive():
            pass
        assert involuntary() > before
    finally:
        os.sched_setaffinity(0, everywhere)


class Library(types.ModuleType):
    """What is used of pynvml, for one device; an answer that is an exception is raised."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND = 0, 3, 6

    class NVMLError(Exception):
        def __init__(self, message, value=3):
            super().__init__(message)
            self.value = value

    def __init__(self, **answers):
        super().__init__("pynvml")
        self.opened = False
        self.pids = [4711]
        self.shares = self.NVMLError("not supported")
        self.answers = {
            "sm": 1900, "mem": 2619, "full": self.NVMLError("not supported"), "max": 1980, "temperature": 41, "bits": 0,
            **answers,
        }  # fmt: skip

    def give(self, answer):
        if isinstance(self.answers[answer], Exception):
            raise self.answers[answer]
        return self.answers[answer]

    def nvmlInit(self):
        self.opened = True

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert self.opened
        if uuid != "GPU-1":
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        assert handle == "handle"
        return self.give({1: "sm", 2: "mem"}[kind])

    def nvmlDeviceGetApplicationsClock(self, handle, kind):
        return self.give("full")

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        assert kind == 1
        return self.give("max")

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self.give("temperature")

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.give("bits")

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        """`shares`: of each process, its id, seconds since the epoch and percent. No sample at all is an error."""
        assert handle == "handle"
        if isinstance(self.shares, Exception):
            raise self.shares
        if not self.shares:
            raise self.NVMLError("Not Found", value=self.NVML_ERROR_NOT_FOUND)
        return [types.SimpleNamespace(pid=pid, timeStamp=int(at * 1e6), smUtil=sm) for pid, at, sm in self.shares]


NOW, OWN = 1_700_000_000.0, os.getpid()


def cuda_guard(**answers):
    library = Library(**answers)
    guard = CudaGuard(Nvml(library, "handle"), now=lambda: NOW)
    guard.start()
    return guard, library


NOT_SUPPORTED = Library.NVMLError("not supported")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, None),
        ({"sm": 1486}, None),  # 75 % of 1980 is 1485
        ({"sm": 1484}, "SM clock 1484 of 1980 MHz"),
        ({"sm": 1200, "full": 1500}, None),  # set to run at 1500
        ({"sm": 1100, "full": 1500}, "SM clock 1100 of 1500 MHz"),
        ({"sm": 345, "bits": 0x1}, "SM clock 345 of 1980 MHz"),  # idle
        ({"sm": 1100, "bits": 0x4}, None),  # its own power cap
        ({"sm": 1100, "bits": 0x2}, None),
        ({"bits": 0x8}, "throttled: hardware slowdown"),
        ({"bits": 0x20}, "throttled: thermal slowdown by the driver"),
        ({"bits": 0x40 | 0x8 | 0x4}, "throttled: hardware slowdown, thermal slowdown by the hardware"),
        ({"bits": 0x80}, "throttled: power brake"),
        ({"bits": 0x10 | 0x100 | 0x4000}, None),
        ({"sm": NOT_SUPPORTED, "bits": NOT_SUPPORTED, "max": NOT_SUPPORTED}, None),
        ({"sm": 1100, "bits": NOT_SUPPORTED}, "SM clock 1100 of 1980 MHz"),
    ],
)
def test_what_disturbs_a_cuda_device(answers, reason):
    guard, _ = cuda_guard(**answers)
    assert guard.stop() == reason


@pytest.mark.parametrize(
    ("pids", "reason"),
    [
        ([], None),  # a container may hide all of them
        ([4711], None),  # this process, whatever its number is called inside
        ([4711, 4711], None),
        ([4711, 4712], "others that have the device open: 1"),
        ([1, 2, 3], "others that have the device open: 2"),
    ],
)
def test_other_processes_on_a_cuda_device_that_does_not_tell_shares(pids, reason):
    guard, library = cuda_guard()
    library.pids = pids
    assert guard.stop() == reason


@pytest.mark.parametrize(
    ("shares", "percent"),
    [
        ([], None),  # others have it open, and nothing else
        ([(OWN, NOW, 80)], None),
        ([(OWN, NOW, 80), (1, NOW, 9)], None),
        ([(OWN, NOW, 80), (1, NOW, 10)], 10),
        ([(OWN, NOW, 20), (1, NOW, 60), (2, NOW, 7)], 67),
        ([(OWN, NOW, 80), (1, NOW - 1.9, 50)], 50),
        ([(OWN, NOW, 80), (1, NOW - 2.1, 50)], None),  # long ago
        ([(OWN, NOW, 80), (1, NOW, 1_000_000), (2, NOW, 0)], None),  # made up
        ([(4711, NOW, 80)], None),  # this one, as its container's host calls it
        ([(4711, NOW, 80), (1, NOW, 30)], 30),
    ],
)
def test_a_process_disturbs_if_it_uses_the_device(shares, percent):
    guard, library = cuda_guard()
    library.pids, library.shares = [OWN, 1, 2], shares
    assert guard.stop() == (f"others used the device in {percent} % of the time" if percent else None)


def test_an_answer_without_samples_is_no_refusal():
    """nvidia-ml-py raises what the driver returned, success too, where there was nothing to make room for."""
    guard, library = cuda_guard()
    library.pids, library.shares = [OWN, 1], Library.NVMLError("Success", value=0)
    assert guard.stop() is None


def test_heat_is_told_before_others():
    guard, library = cuda_guard(bits=0x40)
    library.shares = [(OWN, NOW, 50), (1, NOW, 50)]
    assert guard.stop() == "throttled: thermal slowdown by the hardware"


@pytest.fixture
def installed(monkeypatch):
    """The library is installed and shows the device as GPU-1."""
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(nvml_module, "find_spec", lambda name: name)
    monkeypatch.setattr(nvml_module, "_uuid", lambda device: {"cuda:0": "GPU-1"}.get(device, "GPU-2"))
    return library


def test_a_cuda_device_is_found_by_its_uuid(installed):
    assert open_nvml("cuda:0") == Nvml(installed, "handle")
    with pytest.raises(MeasureError, match=r"^NVIDIA's management library does not show cuda:1: Not Found$"):
        open_nvml("cuda:1")


@pytest.fixture
def host(monkeypatch):
    """A guard of the host that says what the test wants."""
    guard = ScriptedGuard()
    monkeypatch.setattr(guard_module, "_host_guard", lambda: guard)
    return guard


def test_the_guard_of_a_cuda_device_watches_its_host_too(installed, host):
    """`latency`, and what is bound by launching, are times of the host."""
    guard = guard_for("cuda:0")
    assert guard.name == "a script (except in the regime device); NVML"
    host.reasons = [None, "CPU pressure", None, "CPU pressure"]
    expected = [None, "CPU pressure", "others that have the device open: 1", "CPU pressure"]
    for pids, reason in zip(([1], [1], [1, 2], [1, 2]), expected, strict=True):
        installed.pids = pids
        guard.start()
        assert guard.stop() == reason
    assert guard_for("cuda:1").name.endswith("; none: NVIDIA's management library does not show cuda:1: Not Found")


def test_the_regime_of_the_device_alone_has_a_guard_of_the_device_alone(installed, host):
    guard = guard_for("cuda:0")
    assert watching(guard, "device") is guard.device
    assert [watching(guard, regime) for regime in ("throughput", "latency")] == [guard, guard]
    assert watching(host, "device") is host


def test_without_the_package_the_guard_says_what_to_install(monkeypatch, host):
    monkeypatch.setattr(nvml_module, "find_spec", lambda name: None)
    guard = guard_for("cuda")
    assert guard.name.endswith('is not at hand: pip install "architecture-explorer[gpu]"')
    host.reasons = [None, "CPU pressure"]
    for reason in (None, "CPU pressure"):
        guard.start()
        assert guard.stop() == reason


def test_an_old_library_knows_the_reasons_by_another_name(installed, monkeypatch):
    monkeypatch.delattr(Library, "nvmlDeviceGetCurrentClocksEventReasons")
    assert open_nvml("cuda:0").reasons() is None
    installed.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x4
    assert open_nvml("cuda:0").reasons() == ("power cap",)


@pytest.mark.parametrize("error", [AttributeError("no nvmlDeviceGetHandleByUUID"), TypeError("bytes expected")])
def test_a_library_that_is_too_old_is_no_guard(installed, host, error):
    installed.nvmlDeviceGetHandleByUUID = lambda uuid: throw(error)
    why = f"NVIDIA's management library is too old (nvidia-ml-py): {error}"
    assert guard_for("cuda:0").name == f"a script (except in the regime device); none: {why}"


def throw(error):
    raise error


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize(
    ("account", "resource", "name"),
    [
        (True, True, "CPU pressure"),
        (False, True, "context switches"),
        (False, False, "none: this system tells neither CPU pressure nor context switches"),
    ],
)
def test_the_guard_of_a_host(monkeypatch, pressure, device, account, resource, name):
    monkeypatch.setattr(guard_module, "keeps_account", lambda: account)
    monkeypatch.setattr(guard_module, "find_spec", lambda module: module if resource else None)
    monkeypatch.setattr(guard_module, "PressureGuard", lambda: PressureGuard(pressure.path))
    assert guard_for(device).name == name


def test_the_clocks_of_a_cuda_device(installed):
    installed.answers["bits"] = 0x4 | 0x8
    assert clocks("cuda:0") == {
        "sm_mhz": 1900,
        "memory_mhz": 2619,
        "temperature_c": 41,
        "throttle": ["power cap", "hardware slowdown"],
        "unknown": None,
    }


def test_clocks_that_are_not_told_are_unknown(installed, monkeypatch):
    installed.answers |= {"mem": NOT_SUPPORTED, "bits": NOT_SUPPORTED}
    found = clocks("cuda:0")
    assert (found["sm_mhz"], found["memory_mhz"], found["throttle"]) == (1900, None, None)
    assert found["unknown"] == "the device does not tell memory_mhz, throttle"
    monkeypatch.setattr(nvml_module, "find_spec", lambda name: None)
    missing = clocks("cuda:0")
    assert list(missing) == list(found)
    assert {missing[key] for key in list(missing)[:-1]} == {None}
    assert "pip install" in missing["unknown"]
    assert clocks("mps") == {"unknown": "nothing here reads the clocks of mps"}


def test_the_clock_of_a_cpu(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(clocks_module, "_CPUINFO", cpuinfo)
    assert clocks("cpu") == {"cpu_mhz": None, "unknown": f"{cpuinfo} names no clock"}
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert clocks("cpu")["cpu_mhz"] is None
    cpuinfo.write_text("cpu MHz\t\t: 2300.000\nflags\t: fpu\ncpu MHz\t\t: 3100.500\n")
    assert clocks("cpu") == {"cpu_mhz": 2700.2, "unknown": None}
