"""`explorer calibrate`: what it prints, where it stores, and wrong input; the measuring itself is made up."""

from dataclasses import dataclass, field

import pytest

from explorer.prediction import calibrate as module
from explorer.prediction.calibration import HeldOut
from explorer.prediction.store import stored
from tests.prediction.machine import Machine, calibrated


@dataclass
class MadeUp:
    """Answers as `calibrate` does, and notes what it was asked."""

    held_out: HeldOut = field(default_factory=lambda: HeldOut(0.05, 0.1, 1.1, {}))
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def __call__(self, device, dtypes, *, on_progress):
        self.asked.append((device, tuple(dtypes)))
        return calibrated(Machine().rates(), self.held_out)


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    answers = MadeUp()
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "calibrate", answers)
    return answers


def test_it_prints_what_it_found_and_where_it_is(explorer, made_up, tmp_path):
    result = explorer("calibrate", "--device", "cpu")
    assert result.exit_code == 0
    assert made_up.asked == [("cpu", ("float32", "bfloat16"))]
    assert result.stdout.startswith("A machine, 2 threads, torch 2.13.0, 2026-12-01; watched: nobody\n")
    rows = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert "host: calling a module 2.000 µs" in rows
    assert "held-out blocks: median error float32 5.000 %" in rows
    assert f"stored in {tmp_path}/calibrations/a-machine-2threads.json" in rows
    assert stored("A machine", 2) is not None
    assert result.stderr == ""


def test_a_calibration_that_is_no_good_says_so(explorer, made_up):
    made_up.held_out = HeldOut(0.4, 0.5, 1.1, {})
    result = explorer("calibrate", "--dtype", "float32")
    assert result.exit_code == 0
    assert made_up.asked[0][1] == ("float32",)
    why = "held-out blocks are off by 40% (median), more than 25%"
    assert result.stderr == f"float32: predictions are not validated on this device: {why}\n"


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
