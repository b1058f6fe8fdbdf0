"""Calibrating as a whole, on a machine that is made up: what is put together from its times predicts its blocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest

from explorer.errors import MeasureError, UsageError
from explorer.latency.clock import PerfCounterClock
from explorer.latency.guard import Guard, NoGuard
from explorer.latency.regimes import Regime, in_turn
from explorer.prediction import bench as benches
from explorer.prediction import calibrate as module
from explorer.prediction.calibrate import calibrate
from explorer.prediction.calibration import Calibration
from explorer.prediction.host import HostFit, Refill
from explorer.prediction.kernels import MIB, Kernel, kernels
from explorer.prediction.passes import pass_times
from explorer.prediction.predict import predict
from explorer.prediction.sampling import Lane, OnProgress, Plan, Regimes, Samples
from explorer.prediction.specimens import Specimen, held_out, tiny
from tests.prediction.machine import HOST, Machine

ITEMSIZES = {"float32": 4, "bfloat16": 2}
CLEAN = {"float32": 0.9, "bfloat16": 0.8}


def nothing() -> None:
    """What stands for every call: the times are made up."""


def made_up(machine: Machine, host: HostFit, launch_us: float | None = None) -> Callable[..., Samples]:
    """Samples as the machine would give them, of kernels and of blocks; launch_us: where the host is not the device."""

    def ms(key: str) -> float:
        name, *more, dtype = key.split(" | ")
        every: dict[str, Kernel] = {kernel.key: kernel for kernel in kernels(ITEMSIZES[dtype], 64 * MIB)}
        if more == ["launch"]:
            assert launch_us is not None
            return launch_us / 1e3
        if name in every:
            return machine.us(every[name]) / 1e3
        specimen = next(one for one in (*tiny(dtype), *held_out(dtype, 64 * MIB)) if one.key == name)
        rates = machine.rates(ITEMSIZES[dtype], launch_us)
        times = pass_times(specimen.rows, specimen.around, rates, host)
        behind = ms(f"weights 1x768x3072 | {dtype}") + 0.02 if more else 0.0
        return times.of("host" if launch_us is None else "throughput") / 1e3 + behind

    def sample(lanes: Mapping[str, Lane], guard: Guard, rng: Any, plan: Any, told: OnProgress) -> Samples:
        """So many clean samples as the one dtype of these lanes has."""
        (dtype,) = {key.rpartition(" | ")[2] for key in lanes}
        told("measuring", 0, 1)
        return Samples({key: ms(key) for key in lanes}, CLEAN[dtype])

    return sample


def of_machine(machine: Machine, launch_us: float | None = None, *asked: str, **more: Any) -> Calibration:
    """A calibration of the machine, with nothing built and nothing run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sample", made_up(machine, HOST, launch_us))
        patch.setattr(benches.Bench, "_made", lambda self, key, build: [nothing])
        patch.setattr(benches, "_most_weights", lambda device: 64 * MIB)
        if launch_us is not None:
            apart = Regimes(*(Regime(name, PerfCounterClock(), in_turn) for name in ("device", "throughput")))
            patch.setattr(benches, "regimes", lambda device: apart)
        return calibrate("cpu", asked or tuple(ITEMSIZES), guard=NoGuard("a test"), **more)


@pytest.fixture(scope="module")
def found(machine: Machine) -> Calibration:
    """A calibration of the machine; torch's state must be left as it was."""
    import torch

    before = torch.get_rng_state()
    made = of_machine(machine)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    return made


def test_held_out_blocks_of_a_regular_machine_are_met(found: Calibration) -> None:
    assert list(found.dtypes) == ["float32", "bfloat16"]
    for of in found.dtypes.values():
        assert len(of.held_out.blocks) == 10
        assert of.held_out.median < 0.01
        assert of.held_out.ratio < 1.05
        assert of.faults == []


def test_each_dtype_is_measured_by_itself_and_once(machine: Machine) -> None:
    """No sampling has lanes of two dtypes (`made_up` takes those of one only), and none is asked for twice."""
    told: list[str] = []
    asked = ("float32", "bfloat16", "float32")
    found = of_machine(machine, None, *asked, on_progress=lambda stage, done, total: told.append(stage))
    assert told == ["float32: measuring", "bfloat16: measuring"]
    assert {dtype: of.clean for dtype, of in found.dtypes.items()} == CLEAN


def test_rates_are_the_machines(found: Calibration, machine: Machine) -> None:
    for dtype, of in found.dtypes.items():
        rates = machine.rates(ITEMSIZES[dtype])
        assert of.rates.beside_ns == pytest.approx(rates.beside_ns)
        for specimen in held_out(dtype, 64 * MIB):
            around = specimen.around
            for row in specimen.rows:
                assert of.rates.split(row, around) == pytest.approx(rates.split(row, around))


def test_what_large_kernels_push_out_is_seen(found: Calibration) -> None:
    """20 microseconds each time."""
    refill = found.dtypes["float32"].host.refill
    assert refill.most == pytest.approx(20)
    assert 0 < refill.share < 1


def test_costs_of_the_host_predict_its_blocks(found: Calibration, machine: Machine) -> None:
    """Single costs need not be those of the machine: tiny blocks have more kernels where they have more modules."""
    for specimen in held_out("float32", 64 * MIB):
        rates, host = found.dtypes["float32"].rates, found.dtypes["float32"].host
        costs, true = host.costs.time(specimen.rows, rates), HOST.costs.time(specimen.rows, rates)
        assert costs == pytest.approx(true, rel=0.15)


def test_a_device_apart_from_its_host_is_met_too() -> None:
    """Launches of 6 us, kernels of 2 us at least: tiny blocks show the host, large ones the device."""
    found = of_machine(Machine(overhead_us=2.0), launch_us=6.0)
    for of in found.dtypes.values():
        assert set(of.rates.nodes.values()) == {2.0}
        assert set(of.rates.overheads.values()) == {6.0}
        assert of.held_out.median < 0.02
        assert of.host.refill == Refill()


def test_it_says_of_what_it_is(found: Calibration) -> None:
    import torch

    assert (found.device, found.torch, found.threads) == ("cpu", torch.__version__, torch.get_num_threads())
    assert found.by.startswith("explorer ")
    for dtype, of in found.dtypes.items():
        assert (of.date, of.guard, of.clean) == (date.today().isoformat(), "none: a test", CLEAN[dtype])
    assert Calibration.from_dict(found.to_dict()) == found


def test_a_calibrated_machine_predicts(found: Calibration) -> None:
    specimen = held_out("bfloat16", 64 * MIB)[0]
    point = predict(specimen.rows, specimen.workload, found, copies=1)
    measured, _ = found.dtypes["bfloat16"].held_out.blocks[specimen.key]
    assert point.validated
    assert point.ms == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("dtype", ["floot32", "int8"])
def test_a_dtype_that_is_none_is_told(dtype: str) -> None:
    with pytest.raises(
        UsageError, match=f"dtype '{dtype}' is unknown; it is one of: float64, float32, bfloat16, float16"
    ):
        calibrate("cpu", (dtype,))


def test_a_kernel_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(itemsize: int, most: int) -> tuple[Kernel, ...]:
        def build(draw: Any) -> Any:
            raise RuntimeError("no such kernel")

        return (Kernel("odd", "weights", build),)

    monkeypatch.setattr(benches, "kernels", broken)
    with pytest.raises(MeasureError, match="cpu cannot be calibrated in float32: odd: no such kernel"):
        calibrate("cpu", ("float32",), guard=NoGuard("a test"))


@pytest.mark.parametrize(
    "specimen", [*tiny("float32"), *held_out("float32", 64 * MIB)[4:8]], ids=lambda specimen: specimen.key
)
def test_blocks_run_as_their_rows_say(specimen: Specimen) -> None:
    """As many matrix products as rows say, counted by torch itself; attention in one kernel is one more of its own."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    (call,) = specimen.build("cpu")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    products = sum(row.matmul_flops for row in specimen.rows if row.kind == "product")
    assert counter.get_total_flops() >= products > 0
    assert counter.get_total_flops() <= sum(row.matmul_flops for row in specimen.rows)


def test_few_calls_are_sampled_for_real() -> None:
    """Some kernels, one tiny block and one held out, with a real clock: no number is checked, but all are there."""
    import torch

    from explorer.prediction.sampling import sample

    small = [one for one in kernels(4, 2 * MIB) if one.tiny or one.key in ("weights 1x768x3072", "narrow 2048x768x64")]
    bench = benches.Bench(
        "float32", "cpu", benches.regimes("cpu"), tuple(small), tiny("float32")[:1], held_out("float32", 64 * MIB)[4:5]
    )
    with torch.no_grad():
        found = sample(dict(bench.lanes()), NoGuard("a test"), random.Random(0), Plan(clean=1, clean_long=1, rounds=1))
    assert len(found.ms) == len(small) + len(bench.refilled) + 2
    assert min(found.ms.values()) > 0
