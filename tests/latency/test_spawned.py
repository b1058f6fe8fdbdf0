"""What the parent makes of a process: its lines, its silence, its end. Each is a line of Python without torch."""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from explorer.errors import MeasureError
from explorer.latency.spawned import Lost, Spawned
from tests.latency.jobs import job

HELLO = 'print(\'{"event": "progress"}\', flush=True)'
END = 'print(\'{"event": "end"}\', flush=True)'


@contextmanager
def saying(script, hang_s=60):
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        worker = Spawned(process, errors, hang_s)
        try:
            yield worker
        finally:
            worker.kill()
            process.stdin.close()
            assert process.poll() is not None


def test_messages_end_with_the_last_one():
    with saying(f"{HELLO}; {HELLO}; {END}; import time; time.sleep(600)") as worker:
        assert list(worker.messages()) == [{"event": "progress"}] * 2


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("import os; os._exit(9)", "its process exited with code 9"),
        ("raise SystemExit(0)", "its process exited with code 0"),
        ("print('{\"event\": \"prog', end='', flush=True)", "its process exited with code 0"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "its process was ended by SIGKILL, as the system does when memory runs out",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by SIGSEGV"),
        ("import time; time.sleep(600)", "no sign of life for 0.5 s"),
    ],
)
def test_an_early_end_says_how(script, how):
    with saying(f"{HELLO}\n{script}", hang_s=0.5) as worker:
        messages = worker.messages()
        next(messages)
        with pytest.raises(Lost, match=f"^{how}$"):
            next(messages)


def test_the_last_that_it_wrote_is_kept():
    with saying("import sys; sys.exit('x' * 5000 + ' the reason')") as worker:
        with pytest.raises(Lost) as lost:
            list(worker.messages())
        assert lost.value.details.endswith("x the reason")
        assert len(lost.value.details) < 2500


def test_what_is_no_candidates_fault_is_an_error_of_the_whole():
    script = 'print(\'{"event": "broken", "reason": "OSError: no such file"}\')'
    with saying(script) as worker, pytest.raises(MeasureError, match=r"^a measuring process failed: OSError: no such"):
        list(worker.messages())


FORKS = """
import os, time
child = os.fork()
if child == 0:
    time.sleep(600)
print('{"event": "child", "pid": %d}' % child, flush=True)
os._exit(3)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_that_outlives_the_worker_delays_nobody():
    """It holds the worker's output open, and would be waited for until it ends."""
    with saying(FORKS) as worker:
        messages = worker.messages()
        child = next(messages)["pid"]
        with pytest.raises(Lost, match=r"^its process exited with code 3$"):
            next(messages)
    assert is_gone(child)
    assert not worker._listener.is_alive()


def is_gone(pid):
    """Whether a process has ended: one whose parent has gone may stay as a zombie where nothing takes it over."""
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("lane_only", [True, False])
def test_a_worker_without_its_device_says_what_is_to_blame(lane_only):
    line = json.dumps({"event": "lost", "reason": "an illegal access", "lane_only": lane_only})
    with saying(f"print({line!r})") as worker:
        with pytest.raises(Lost, match=r"^an illegal access$") as lost:
            list(worker.messages())
        assert lost.value.lane_only is lane_only


def test_one_that_has_ended_is_told_nothing():
    with saying("") as worker:
        with pytest.raises(Lost):
            list(worker.messages())
        worker.tell(job())
