"""Predictions: points and intervals told by hand, what cannot be told, and that more work never takes less time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer import load
from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Row, Traffic, Work
from explorer.errors import MeasureError
from explorer.prediction.calibration import Calibration, HeldOut
from explorer.prediction.hardware import Hardware
from explorer.prediction.hardware_table import hardware_table
from explorer.prediction.host import Refill
from explorer.prediction.predict import predict
from explorer.prediction.prediction import Times
from explorer.prediction.rates import Rates
from explorer.prediction.rows import CALL, rows_of
from explorer.prediction.working_set import WorkingSet
from tests.prediction.machine import HOST, calibrated

PREFILL = Workload("prefill", 8, 256, 256, dtype="float32")
DECODE = Workload("decode", 1, 1, 128, dtype="float32")
PRODUCT = Row(
    "aten::mm", "product", 2 * 2048 * 1024 * 1024, 2 * 2048 * 1024 * 1024,
    read=Traffic(weights=4 * 1024 * 1024, activations=4 * 2048 * 1024), written=Traffic(activations=4 * 2048 * 1024),
    kernels=1,
)  # fmt: skip
ADD = Row("aten::add", "pointwise", work=Work(cheap=2**20), read=Traffic(activations=2**23),
          written=Traffic(activations=2**22), kernels=1)  # fmt: skip
VIEW, CALLED = Row("aten::view", "view"), Row("Linear", CALL)
ROWS = [PRODUCT, VIEW, VIEW, ADD, CALLED]
TABLE = hardware_table()


def h100() -> Hardware:
    return TABLE.find("h100-sxm")


# On a calibrated device -----------------------------------------------------------------------------------------------


def by_hand() -> tuple[float, float]:
    """Microseconds of the machine for ROWS: of its host, and of the device."""
    host = 10 + 2 * 4.0 + 2 * 0.25 + 2.0 + 2 * 5.0
    product = PRODUCT.matmul_flops / 1e5 + (PRODUCT.read.total + PRODUCT.written.total) / 1e4
    return host, product + (ADD.read.total + ADD.written.total) / 1e4


def test_on_a_cpu_host_and_device_take_turns(calibration: Calibration) -> None:
    host, device = by_hand()
    found = predict(ROWS, PREFILL, calibration)
    assert found.ms == pytest.approx((host + device) / 1e3, rel=0.01)
    assert (found.low, found.high) == (pytest.approx(found.ms * 0.95), pytest.approx(found.ms * 1.05))
    assert (found.device, found.regime, found.validated, found.reason) == ("A machine", "host", True, None)
    assert found.basis == (
        f"calibrated with torch {torch.__version__}, 2 threads, {date.today().isoformat()}; "
        "held-out blocks in prefill off by 5.0% (median), all by 10% at most"
    )


def test_shares_say_where_the_time_goes(calibration: Calibration) -> None:
    host, device = by_hand()
    shares = predict(ROWS, PREFILL, calibration).shares
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["launch"] == pytest.approx(host / (host + device), rel=0.02)
    assert shares["math"] > shares["bandwidth"]
    moving = predict([ADD], PREFILL, calibration).shares
    assert moving is not None
    assert moving["bandwidth"] > 10 * moving["math"]


def on_cuda(rates: Rates) -> Calibration:
    nodes = dict.fromkeys(rates.overheads, 2.0)
    return calibrated(replace(rates, nodes=nodes), device="cuda:0")


@pytest.mark.parametrize("regime", ["throughput", "device", "latency", None])
def test_elsewhere_the_host_works_ahead(regime: str | None, rates: Rates) -> None:
    host, work = by_hand()
    device = work + 2 * 2.0
    last = 2.0 + (ADD.read.total + ADD.written.total) / 1e4
    expected = {"throughput": max(host, device), "device": device, "latency": max(device, host + last), None: device}
    found = predict(ROWS, PREFILL, on_cuda(rates), regime=regime)
    assert found.ms == pytest.approx(expected[regime] / 1e3, rel=0.01)
    assert found.regime == (regime or "throughput")


def test_a_host_that_is_behind_is_what_counts(rates: Rates) -> None:
    small = replace(ADD, read=Traffic(activations=64), written=Traffic(activations=32))
    host = HOST.time([small] * 50, rates, 0)
    found = {r: predict([small] * 50, PREFILL, on_cuda(rates), regime=r) for r in ("throughput", "latency", "device")}
    assert found["throughput"].ms == pytest.approx(host / 1e3)
    assert found["latency"].ms == pytest.approx((host + 2.0) / 1e3, rel=1e-3)
    assert found["device"].ms == pytest.approx(0.1, rel=0.01)
    shares = found["throughput"].shares
    assert shares is not None
    assert shares["launch"] > 0.99


@pytest.mark.parametrize(("target", "regime"), [("cpu", "device"), ("cuda", "host"), ("table", "host")])
def test_a_regime_that_a_device_does_not_have_is_an_error(target: str, regime: str, rates: Rates) -> None:
    where = {"cpu": calibrated(rates), "cuda": on_cuda(rates), "table": h100()}[target]
    with pytest.raises(MeasureError, match=f"this device has no regime '{regime}'; it has: "):
        predict(ROWS, PREFILL, where, regime=regime)


def test_weights_of_a_decode_come_from_the_memory_unless_somebody_knows_better(calibration: Calibration) -> None:
    row = replace(PRODUCT, matmul_flops=2**21, matmul_flops_exact=2**21, read=Traffic(weights=2**22))
    times = {copies: predict([row], DECODE, calibration, copies=copies).ms for copies in (None, 1, 2, 64)}
    assert times[1] == pytest.approx(times[2], rel=0.05)  # 8 MiB still lie near
    assert times[None] == pytest.approx(times[64])
    assert times[None] > 1.5 * times[1]
    assert predict([row], replace(PREFILL, tokens=1), calibration).ms == times[1]


@pytest.mark.parametrize(
    ("held_out", "doubt"),
    [
        (HeldOut(0.25, 0.9, 1.3, {"prefill": 0.25, "decode": 0.6}, {}), None),
        (
            HeldOut(0.03, 0.6, 1.0, {"prefill": 0.26, "decode": 0.03}, {}),
            "held-out blocks in prefill are off by 26% (median), more than 25%",
        ),
        (
            HeldOut(0.05, 0.3, 1.31, {"prefill": 0.05}, {}),
            "a ratio of two held-out blocks is off by 1.31x, more than 1.3x",
        ),
    ],
)
def test_a_device_whose_held_out_blocks_were_missed_is_not_validated(
    held_out: HeldOut, doubt: str | None, rates: Rates
) -> None:
    found = predict(ROWS, PREFILL, calibrated(rates, held_out))
    assert found.ms is not None
    assert found.validated == (doubt is None)
    assert found.reason == (None if doubt is None else f"prediction not validated on this device: {doubt}")


def test_what_no_held_out_block_was_like_is_not_validated(calibration: Calibration) -> None:
    unknown = predict([*ROWS, replace(ADD, op="lab::mix", kind="unknown", counted=False)], PREFILL, calibration)
    training = predict(ROWS, Workload("train", 8, 256, 256, dtype="float32"), calibration)
    assert (unknown.validated, training.validated) == (False, False)
    assert str(unknown.reason).endswith("operators without a rule take the time of an addition: lab::mix")
    assert str(training.reason).endswith("no training pass is among the held-out blocks")
    assert unknown.ms is not None


@pytest.mark.parametrize(("days", "version"), [(91, None), (0, "2.12.1")])
def test_an_outdated_calibration_is_not_validated(days: int, version: str | None, calibration: Calibration) -> None:
    of = replace(calibration.dtypes["float32"], date=(date.today() - timedelta(days)).isoformat())
    old = replace(calibration, torch=version or calibration.torch, dtypes={"float32": of})
    found = predict(ROWS, PREFILL, old)
    assert not found.validated
    assert str(found.reason).endswith("run `explorer calibrate` again")


@pytest.mark.parametrize("regime", ["device", "latency"])
def test_held_out_blocks_speak_of_their_own_regime(regime: str, rates: Rates) -> None:
    found = predict(ROWS, PREFILL, on_cuda(rates), regime=regime)
    assert not found.validated
    assert str(found.reason).endswith(f"timed in the regime 'throughput', not in '{regime}'")


@pytest.mark.parametrize(
    ("workload", "copies", "cache"),
    [(DECODE, None, "cold weights"), (DECODE, 1, "warm"), (PREFILL, None, "warm"), (PREFILL, 3, "cold weights")],
)
def test_it_is_told_where_weights_are_taken_to_lie(
    workload: Workload, copies: int | None, cache: str, calibration: Calibration
) -> None:
    for target in (calibration, h100()):
        assert predict(ROWS, workload, target, copies=copies).entry()["cache"] == cache


def test_phases_have_their_own_errors(calibration: Calibration) -> None:
    point = predict(ROWS, DECODE, calibration)
    assert point.high == pytest.approx(1.08 * point.ms)
    assert "held-out blocks in decode off by 8.0%" in point.basis


# On hardware that is not at hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm", "mi300x", "l4"])
@pytest.mark.parametrize("regime", ["throughput", "device"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_estimate_is_the_data_sheet_times_what_is_reached(name: str, regime: str, dtype: str) -> None:
    device = TABLE.find(name)
    peak = {"float32": device.peaks["fp32"], "bfloat16": device.peaks["bf16"]}[dtype]
    assert peak is not None

    def us(gemm: float, bandwidth: float, dispatch: float) -> float:
        flops, nbytes = peak * 1e6 * gemm, device.bandwidth_gbs * 1e3 * bandwidth
        product = max(PRODUCT.matmul_flops / flops, (PRODUCT.read.total + PRODUCT.written.total) / nbytes)
        on_device = product + (ADD.read.total + ADD.written.total) / nbytes + 2 * 1.5
        return on_device if regime == "device" else max(on_device, 2 * dispatch + 2 * 1.1)

    found = predict(ROWS, replace(PREFILL, dtype=dtype), device, regime=regime)
    assert found.ms == pytest.approx(us(device.gemm.point, device.bandwidth.point, 6) / 1e3)
    assert found.low == pytest.approx(us(0.9, 0.93, 4) / 1e3)
    assert found.high == pytest.approx(us(0.5, 0.7, 12) / 1e3)
    assert not found.validated
    assert found.reason == "prediction not validated on this device: nothing was measured on it"
    assert found.basis.startswith("estimate: data sheet x achievable range (products ")
    assert device.src in found.basis


def test_a_block_that_does_not_fit_is_told() -> None:
    large = replace(PRODUCT, read=Traffic(weights=81 * 10**9))
    assert str(predict([large], PREFILL, h100()).reason).endswith("its weights, 81 GB, do not fit 80 GB")


@pytest.mark.parametrize(("attention", "host"), [("mha_naive", (0.6, 1.3)), ("mha", (0.05, 0.2))])
def test_the_seeds_attention_on_an_h200_is_mostly_launching(attention: str, host: tuple[float, float]) -> None:
    """On the host 0.6 to 1.3 ms written out and about 0.1 ms fused; on the device about 0.3 ms both times."""
    document = {"dim": 768, "heads": 12, "attention": attention, "feedforward": "none", "placement": "none"}
    rows = rows_of(load({**document, "causal": False, "bias": True}).plan(), "block", PREFILL, {})
    h200 = TABLE.find("h200-sxm")
    device, eager = (predict(rows, PREFILL, h200, regime=regime) for regime in ("device", "throughput"))
    assert device.ms == pytest.approx(0.3, rel=0.35)
    assert eager.low < max(host[1], device.low * 1.01)
    assert eager.high > host[0]
    assert (eager.ms > 1.5 * device.ms) == (attention == "mha_naive")


@pytest.mark.parametrize(
    ("dtype", "name", "reason"),
    [
        ("float64", "h100-sxm", "not predicted: the table has no peak of h100-sxm in float64"),
        ("float64", "local", "not predicted: float64 is not calibrated on this device, only float32"),
    ],
)
def test_a_dtype_that_nobody_knows_is_none_with_the_reason(
    dtype: str, name: str, reason: str, calibration: Calibration
) -> None:
    found = predict(ROWS, replace(PREFILL, dtype=dtype), calibration if name == "local" else TABLE.find(name))
    assert (found.ms, found.low, found.high, found.shares, found.validated) == (None, None, None, None, False)
    assert found.reason == reason


@pytest.mark.parametrize("where", ["local", "table"])
@pytest.mark.parametrize(
    ("rows", "workload", "reason"),
    [
        ([], PREFILL, "the block does not run, its output stands in a cache"),
        (
            ROWS,
            replace(PREFILL, weight_dtype="float8_e4m3fn"),
            "weights in float8_e4m3fn beside activations in float32",
        ),
        (ROWS, replace(PREFILL, phase="train", recompute="full"), "recompute full is counted only"),
    ],
)
def test_what_rows_do_not_tell_is_none_with_the_reason(
    where: str, rows: list[Row], workload: Workload, reason: str, calibration: Calibration
) -> None:
    found = predict(rows, workload, calibration if where == "local" else h100())
    assert found.ms is None
    assert str(found.reason).startswith(f"not predicted: {reason}")


def test_an_entry_is_one_of_latencies(calibration: Calibration) -> None:
    entry = predict(ROWS, PREFILL, calibration).entry()
    assert json.loads(json.dumps(entry)) == entry
    assert (entry["source"], entry["impl"], entry["regime"]) == ("predicted", "eager", "host")
    assert entry["low_ms"] < entry["median_ms"] < entry["high_ms"]
    assert entry["spec"] == calibration.digest
    assert list(entry) == [
        "source", "device", "impl", "regime", "cache", "median_ms", "low_ms", "high_ms", "basis", "spec", "shares",
        "validated", "reason",
    ]  # fmt: skip


def test_what_a_prediction_rests_on_has_a_hash(calibration: Calibration, rates: Rates) -> None:
    """The same for the same numbers, another for others."""
    assert TABLE.find("h100-sxm").digest == hardware_table().find("h100-sxm").digest
    assert replace(h100(), bandwidth_gbs=3351.0).digest != h100().digest
    assert replace(h100(), note="a word").digest == h100().digest
    assert calibrated(rates).digest == calibration.digest
    assert replace(calibration, threads=3).digest != calibration.digest


def test_nothing_has_no_shares() -> None:
    assert Times(0, 0, 0, 0).shares("host") == {"launch": 0, "bandwidth": 0, "math": 0}


# More never takes less ------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 2**24)
KINDS = st.sampled_from(
    [("aten::mm", "product"), ("attend", "fused"), ("aten::add", "pointwise"), ("aten::gelu", "pointwise"),
     ("rms_norm", "norm"), ("aten::clone", "copy"), ("aten::mean", "reduction"), ("aten::_softmax", "softmax")]
)  # fmt: skip
GROWTH = st.floats(1, 64)


@st.composite
def some_rows(draw: Any) -> tuple[Row, Row]:
    """A row, and the same with more of something."""
    op, kind = draw(KINDS)
    flops = draw(SIZES) * 64 if kind in ("product", "fused") else 0
    exact = flops if draw(st.booleans()) else flops // 2
    weights = draw(SIZES) if kind == "product" and draw(st.booleans()) else 0
    read, written = draw(SIZES), draw(SIZES)
    row = Row(op, kind, flops, exact, read=Traffic(weights, read), written=Traffic(0, written), kernels=1)
    more = [int(value * draw(GROWTH)) for value in (flops, weights, read, written)]
    larger = replace(
        row,
        matmul_flops=more[0],
        matmul_flops_exact=more[0] if exact == flops else more[0] // 2,
        read=Traffic(more[1], more[2]),
        written=Traffic(0, more[3]),
    )
    return row, larger


@given(pair=some_rows(), weights=st.integers(0, 2**32), moved=st.integers(0, 2**32), more=GROWTH)
def test_a_row_with_more_of_anything_takes_no_less_time(
    pair: tuple[Row, Row], weights: int, moved: int, more: float, noisy: Rates
) -> None:
    small, large = pair
    near, far = WorkingSet(weights, moved), WorkingSet(weights * more, moved * more)
    before, after = noisy.split(small, near).total, noisy.split(large, far).total
    assert before <= after * (1 + 1e-9)


@pytest.fixture(scope="session")
def noisy() -> Rates:
    """A device that was measured badly: every time up to three times too long."""
    import random

    from explorer.prediction.fitting import rates_from
    from explorer.prediction.kernels import MIB, kernels
    from tests.prediction.machine import Machine

    draw, machine, every = random.Random(7), Machine(), kernels(4, 64 * MIB)
    return rates_from(every, {kernel.key: machine.us(kernel) * draw.uniform(1, 3) for kernel in every})


REFILLING = replace(HOST, refill=Refill(share=0.9, most=120.0))
BLOCKS: dict[str, dict[str, Any]] = {
    "llama": {"dim": 64, "heads": 4, "attention": {"gqa": {"kv_heads": 2}}},
    "naive": {"dim": 64, "heads": 4, "attention": "mha_naive", "norm": "layernorm", "activation": "gelu"},
    "window": {"dim": 64, "heads": 4, "window": 16},
}


@cache
def traced(name: str, phase: str, batch: int, tokens: int, context: int) -> tuple[tuple[Row, ...], Workload]:
    workload = Workload(phase, batch, tokens, context, dtype="float32")  # type: ignore[arg-type]
    return tuple(rows_of(load(BLOCKS[name]).plan(), "block", workload, {})), workload


def ms(name: str, target: Any, phase: str, batch: int, tokens: int, context: int) -> float:
    rows, workload = traced(name, phase, batch, tokens, context)
    found = predict(rows, workload, target).ms
    assert found is not None
    return found


@pytest.mark.parametrize("where", ["machine", "noisy", "h100-sxm"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_takes_no_less_time_for_more_tokens_or_batch(
    name: str, where: str, calibration: Calibration, noisy: Rates
) -> None:
    target = {"machine": calibration, "noisy": calibrated(noisy, host=REFILLING), "h100-sxm": h100()}[where]
    tokens = [ms(name, target, "prefill", 1, length, length) for length in (2, 8, 64, 128, 512)]
    batches = [ms(name, target, "prefill", batch, 32, 32) for batch in (1, 2, 7, 64)]
    contexts = [ms(name, target, "decode", 2, 1, context) for context in (2, 16, 128, 1024)]
    steps = [ms(name, target, "decode", batch, 1, 64) for batch in (1, 2, 7, 64)]
    for times in (tokens, batches, contexts, steps):
        assert times == sorted(times)
        assert math.isfinite(times[-1])


@pytest.mark.parametrize("column", ["bandwidth_gbs", "peaks"])
def test_a_faster_device_takes_no_longer(column: str) -> None:
    rows, workload = traced("llama", "prefill", 1, 512, 512)
    slow = h100()
    faster = {"bandwidth_gbs": 2 * slow.bandwidth_gbs, "peaks": {k: 2 * v for k, v in slow.peaks.items() if v}}
    fast = replace(slow, **{column: faster[column]})
    before, after = (predict(rows, workload, device, regime="device").ms for device in (slow, fast))
    assert before is not None
    assert after is not None
    assert after < before
