"""Progress and colour on screens of every kind."""

import sys

import pytest

from explorer.cli import progress as module
from explorer.cli.progress import Progress
from explorer.cli.screen import has_color


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("explorer.cli.progress.time.monotonic", clock)
    return clock


def test_quick_work_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for done in range(1000):
            clock.now += 0.004
            progress("counting", done, 1000)
    assert capsys.readouterr() == ("", "")


def test_slow_work_prints_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for done in range(1, 1201):
            clock.now += 0.01
            progress("counting", done, 1200)
    assert capsys.readouterr().err == "counting: 500 of 1,200\ncounting: 1,000 of 1,200\n"


def test_a_terminal_gets_a_bar(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # how rich is told that a captured stream is a terminal
    with Progress() as progress:
        progress("counting", 1, 10)
        assert capsys.readouterr().err == ""
        clock.now += 2
        progress("counting", 2, 10)
        progress("measuring", 3, 20)
    assert "counting" in capsys.readouterr().err


COLORS = [(True, {}, True), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False), (False, {}, False)]


@pytest.mark.parametrize(("terminal", "environment", "expected"), COLORS)
def test_color(monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], expected: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert has_color() is expected
