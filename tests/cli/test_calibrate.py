"""`explorer calibrate`: what it prints, where it stores, and wrong input; the measuring itself is made up."""

from dataclasses import dataclass, field, replace
from datetime import date

import pytest
import torch

from explorer.prediction import calibrate as module
from explorer.prediction.calibration import HeldOut
from explorer.prediction.store import path_of, save, stored
from tests.prediction.machine import MET, Machine, calibrated


@dataclass
class MadeUp:
    """Answers as `calibrate` does, and notes what it was asked."""

    held_out: HeldOut = MET
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


TODAY = date.today().isoformat()


def test_it_prints_what_it_found_and_where_it_is(explorer, made_up):
    result = explorer("calibrate", "--device", "cpu")
    assert result.exit_code == 0
    assert made_up.asked == [("cpu", ("float32", "bfloat16"))]
    assert result.stdout.startswith(f"A machine, 2 threads, torch {torch.__version__}; watched: nobody\n")
    rows = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert "host: calling a module float32 2.000 µs" in rows
    assert "held-out blocks, decode: median error float32 8.000 %" in rows
    assert f"stored in {path_of('A machine', 2)}: float32 of {TODAY}" in rows
    assert stored("A machine", 2) is not None
    assert result.stderr == ""


def test_dtypes_that_are_kept_are_told_with_their_date(explorer, made_up):
    found = calibrated(Machine().rates())
    save(replace(found, dtypes={"bfloat16": replace(found.dtypes["float32"], date="2026-11-01")}))
    result = explorer("calibrate", "--dtype", "float32")
    path = path_of("A machine", 2)
    assert result.stdout.endswith(f"\nstored in {path}: bfloat16 of 2026-11-01, float32 of {TODAY}\n")


def test_a_calibration_that_is_no_good_says_so(explorer, made_up):
    made_up.held_out = HeldOut(0.4, 0.5, 1.1, {"decode": 0.4}, {})
    result = explorer("calibrate", "--dtype", "float32")
    assert result.exit_code == 0
    assert made_up.asked[0][1] == ("float32",)
    why = "held-out blocks in decode are off by 40% (median), more than 25%"
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
