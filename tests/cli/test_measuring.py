"""Commands that measure: which rows, interruptions and what goes on after them. Workers are made up, in all but one."""

import json
from contextlib import contextmanager

import pytest

from explorer.latency import crew
from explorer.latency.raw import Lane, Process, Track
from explorer.latency.spawned import Lost

ROUNDS = 20


class Workers:
    """Each times all that it is given at once. before: what happens to the worker of that number, counted from 0."""

    def __init__(self) -> None:
        self.before = {}
        self.started = 0

    @contextmanager
    def __call__(self, part):
        self.part = part
        yield self

    def messages(self):
        number, self.started = self.started, self.started + 1
        if number in self.before:
            raise self.before[number]
        tracks = (Track(Lane(one.key, "eager", "host"), _times(one), 9.0, 5, 3) for one in self.part.recipes)
        about = {"device_name": "a device", "threads": 1}
        yield {
            "event": "process",
            **Process(self.part.seed, tuple(tracks), (None,) * ROUNDS, "a guard", about).to_dict(),
        }


def _times(recipe):
    return tuple((1.0 if recipe.piece else 3.0) * (1 + index / 1000) for index in range(ROUNDS))


@pytest.fixture
def workers(monkeypatch):
    made = Workers()
    monkeypatch.setattr(crew, "spawned", made)
    return made


def measured(result):
    """By the choices of each row whether its block was measured as a whole, as a sum of parts, or not."""
    rows = json.loads(result.stdout)["combinations"]
    first = {row["label"]: (row["costs"][0]["latencies"] or [None])[0] for row in rows}
    return {label: entry and (entry.get("of") or "whole") for label, entry in first.items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["whole"] * 4),
        (["all"], ["whole"] * 4),
        (["parts"], ["parts"] * 4),
        (["pareto"], ["whole", "whole", None, None]),
        (["1"], ["whole", None, None, None]),
    ],
)
def test_which_rows_are_measured(explorer, study, workers, words, expected):
    """Two norms, two attentions; of all that is counted one row has the least."""
    result = explorer("run", study, "--measure", *words, "--effort", "quick", "--device", "cpu", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = list(measured(result).values())
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert workers.started == 1


def test_a_run_goes_on_where_it_was_interrupted(explorer, study, workers, tmp_path):
    """Three processes for each of two workloads; the fifth is interrupted."""
    out, workers.before = tmp_path / "run", {4: KeyboardInterrupt()}
    words = ("run", study, "--workload", "tokens=4", "--workload", "tokens=8", "--measure", "--device", "cpu")
    words = (*words, "--out", out, "--format", "json")
    first = explorer(*words)
    kept = out / "measurements.jsonl"
    assert (first.exit_code, first.stdout) == (130, "")
    assert first.stderr == f"note: {kept} keeps what was measured: the same command with --resume goes on\n"
    assert "add --resume to go on with it" in explorer(*words).stderr
    second = explorer(*words, "--resume")
    assert second.exit_code == 0, second.stderr
    assert second.stderr == f"note: --resume: 4 records of {kept} were not measured again\n"
    assert workers.started == 7, "six, and one that was interrupted"
    assert not kept.exists()
    seeds = [[one["seed"] for one in found["processes"]] for found in json.loads(second.stdout)["measurements"]]
    assert seeds == [[0, 1, 2], [0, 1, 2]]


def test_without_a_folder_nothing_is_promised(explorer, toy, workers):
    workers.before = {1: KeyboardInterrupt()}
    for words in (("run", toy, "--measure"), ("latency", toy, toy)):
        workers.started = 0
        result = explorer(*words, "--device", "cpu")
        assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_workers_that_cannot_begin_cost_no_count_and_nothing_measured(explorer, study, workers, tmp_path):
    """The second of two workloads finds no worker."""
    lost, out = Lost("its process exited with code 1", "no room"), tmp_path / "run"
    workers.before = {1: lost, 2: lost}
    words = ("run", study, "--workload", "tokens=4", "--workload", "tokens=8", "--measure", "--device", "cpu")
    result = explorer(*words, "--effort", "quick", "--out", out, "--format", "json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["combinations"]
    assert all(cost["matmul_flops"] for row in rows for cost in row["costs"])
    blocks = [[cost["latency"] for cost in row["costs"] if cost["scope"] == "block"] for row in rows]
    assert all(first["median_ms"] and second["median_ms"] is None for first, second in blocks)
    assert all("could not begin, twice: its process exited with code 1: no room" in row["error"] for row in rows)
    assert "measurements.jsonl keeps what was measured" in result.stderr
    again = explorer(*words, "--effort", "quick", "--out", out, "--resume")
    assert (again.exit_code, workers.started) == (0, 4)


def test_latency_goes_on_in_its_folder(explorer, toy, workers, tmp_path):
    out, workers.before = tmp_path / "verdict", {2: KeyboardInterrupt()}
    words = ("latency", toy, toy, "--set", "layers=1", "--device", "cpu", "--out", out)
    first = explorer(*words)
    assert first.exit_code == 130
    assert "the same command with --resume goes on" in first.stderr
    second = explorer(*words, "--resume")
    assert second.exit_code == 0, second.stderr
    assert "--resume: 2 records of" in second.stderr
    assert {path.name for path in out.iterdir()} == {"result.json", "verdict.txt", "options.yaml"}
    assert (out / "verdict.txt").read_text(encoding="utf-8") == second.stdout
    assert "TIE" in second.stdout
    compared = explorer("compare", out, toy)
    assert compared.exit_code == 0, compared.stderr


def test_a_verdict_over_a_run_leaves_no_blueprint_of_another(explorer, toy, workers, tmp_path):
    out = tmp_path / "run"
    assert explorer("run", toy, "--out", out).exit_code == 0
    read = explorer("latency", out / "blueprint.yaml", toy, "--device", "cpu", "--out", out)
    assert (read.exit_code, (out / "table.md").exists()) == (2, True)
    assert "blueprint.yaml there is read" in read.stderr
    assert explorer("latency", toy, toy, "--set", "layers=1", "--device", "cpu", "--out", out).exit_code == 0
    assert {path.name for path in out.iterdir()} == {"result.json", "verdict.txt", "options.yaml"}


def test_other_options_start_anew_and_say_so(explorer, toy, workers, tmp_path):
    workers.before = {1: KeyboardInterrupt()}
    words = ("run", toy, "--measure", "--device", "cpu", "--out", tmp_path / "run")
    explorer(*words)
    result = explorer(*words, "--effort", "quick", "--resume")
    assert result.exit_code == 0
    assert "holds nothing of this comparison with these blueprints, options" in result.stderr
    assert (tmp_path / "run" / "measurements.jsonl").exists(), "what another run left stays"


def test_latency_measures(explorer, toy):
    """With a real worker."""
    result = explorer("latency", toy, toy, "--effort", "quick", "--device", "cpu", "--format", "json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    entries = [row["costs"][0]["latency"] for row in document["combinations"]]
    assert all(entry["source"] == "measured" and entry["median_ms"] > 0 for entry in entries)
    assert len(document["measurements"][0]["processes"]) == 1
