"""`explorer calibrate`: what it prints, where it stores, and wrong input; the measuring itself is made up."""

from pathlib import Path

import pytest

from explorer.prediction import calibrate as module
from explorer.prediction.calibration import HeldOut
from explorer.prediction.store import stored
from tests.prediction.machine import Machine, calibrated


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What `calibrate` was called with; it answers with a machine that is made up."""
    calls = []

    def answer(device, dtypes, *, on_progress):
        calls.append((device, tuple(dtypes)))
        return calibrated(Machine().rates(), calls_held_out[0])

    calls_held_out = [HeldOut(0.05, 0.1, 1.1, {})]
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "calibrate", answer)
    calls.append(calls_held_out)
    return calls


def test_it_prints_what_it_found_and_where_it_is(explorer, asked, tmp_path: Path):
    result = explorer("calibrate", "--device", "cpu")
    assert result.exit_code == 0
    assert asked[1:] == [("cpu", ("float32", "bfloat16"))]
    assert result.stdout.startswith("A machine, 2 threads, torch 2.13.0, 2026-12-01; watched: nobody\n")
    rows = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert "calling a module 2.000 µs" in rows
    assert "held-out blocks: median error float32 5.000 %" in rows
    assert f"stored in {tmp_path}/calibrations/a-machine-2threads.json" in rows
    assert stored("A machine", 2) is not None
    assert result.stderr == ""


def test_a_calibration_that_is_no_good_says_so(explorer, asked):
    asked[0][0] = HeldOut(0.4, 0.5, 1.1, {})
    result = explorer("calibrate", "--dtype", "float32")
    assert result.exit_code == 0
    assert asked[1][1] == ("float32",)
    assert result.stderr == (
        "float32: predictions are not validated on this device: held-out blocks are off by 40% (median), more than 25%\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--dtype", "floot32"],
            "error: dtype 'floot32' is unknown; it is one of: float64, float32, bfloat16, float16; ",
        ),
        (["--dtype", ","], "error: --dtype is empty; name one at least, such as float32"),
        (["--device", "quantum"], "error: device 'quantum' is not on this machine; it has: cpu"),
    ],
)
def test_wrong_input_is_one_message(words, message, explorer):
    result = explorer("calibrate", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert len(result.stderr.splitlines()) == 1
