"""What is measured is kept in the folder of `--out` until a result holds it, and said so."""

from pathlib import Path

import pytest

from explorer.cli.kept import forget, keeping, measurements
from explorer.errors import MeasureError, UsageError
from explorer.latency.raw import Failed
from explorer.latency.store import Store
from tests.latency.jobs import job, recipe

FAILED = Failed("a", "its process ended")


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder in which an interrupted run left two records of a job and one of another."""
    store = Store(tmp_path / "measurements.jsonl")
    for owner in (job(), job(), job(recipe("b"))):
        store.add(owner, FAILED)
    return tmp_path


def test_measurements_of_an_interrupted_run_are_not_lost(left: Path) -> None:
    assert measurements(None, False) is None
    with pytest.raises(UsageError, match=r"an interrupted run left measurements\.jsonl there: add --resume"):
        measurements(left, False)
    with pytest.raises(UsageError, match="--resume goes on in the folder of --out"):
        measurements(None, True)


def test_what_was_reused_is_told(left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = measurements(left, True)
    assert store is not None
    with keeping(store):
        assert store.finished(job()) == [FAILED, FAILED]
        assert store.finished(job(recipe("b"))) == [FAILED]
        assert store.finished(job(recipe("c"))) == []
    assert capsys.readouterr().err == f"note: --resume: 3 records of {store.path} were not measured again\n"


def test_that_nothing_can_be_reused_is_told_at_once(left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = measurements(left, True)
    assert store is not None
    with keeping(store):
        store.finished(job(recipe("c")))
        told = capsys.readouterr().err
    assert told.startswith(f"note: --resume: {store.path} holds nothing of this comparison with these blueprints,")
    assert capsys.readouterr().err == ""
    measurements(left / "new", True)
    missing = f"there is no {left / 'new' / 'measurements.jsonl'}, as after a run that finished"
    assert capsys.readouterr().err == f"note: --resume: {missing}; all is measured\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MeasureError("no process")])
def test_where_to_go_on_is_told_only_where_something_is_kept(
    error: BaseException, left: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for store in (None, Store(tmp_path / "new" / "measurements.jsonl"), Store(left / "measurements.jsonl")):
        with pytest.raises((KeyboardInterrupt, MeasureError)), keeping(store):
            raise error
    told = f"note: {left / 'measurements.jsonl'} keeps what was measured: the same command with --resume goes on\n"
    assert capsys.readouterr().err == told


def test_a_result_that_is_written_replaces_its_records_and_no_others(left: Path) -> None:
    store = Store(left / "measurements.jsonl")
    forget(None, [])
    forget(store, [{"job": job().digest}])
    assert store.finished(job()) == []
    assert store.finished(job(recipe("b"))) == [FAILED]
    forget(store, [{"job": job(recipe("b")).digest}])
    assert not store.path.exists()
    forget(store, [{"job": job().digest}])
