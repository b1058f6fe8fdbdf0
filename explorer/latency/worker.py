"""A process that measures one job: reads it from standard input, writes JSON lines to standard output.

Lines: {"event": "progress", ...} before each step, so that the parent knows whom to blame; {"event": "timed", ...} with
a record that has no facts yet, {"event": "facts", ...} with those of a candidate of it, {"event": "process", ...} with
the whole record; as the last one {"event": "end"}, or {"event": "lost", ...} where the candidate or lane last announced
left this process without its device, or {"event": "broken", ...} where no candidate is to blame.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from explorer.latency.raw import Process

Send = Callable[[str, Mapping[str, Any]], None]


def main() -> None:
    """Measure the job that stands in standard input."""
    out = _own_output()
    faulthandler.enable()

    def send(event: str, data: Mapping[str, Any]) -> None:
        out.write(json.dumps({"event": event, **data}) + "\n")
        out.flush()

    data = json.load(sys.stdin)
    from explorer.latency.failure import CaptureLost, DeviceLost

    try:
        for process in _measured(data, send):
            send("process", process.to_dict())
    except DeviceLost as error:
        send("lost", {"reason": str(error), "lane_only": isinstance(error, CaptureLost)})
        return
    except Exception as error:  # no candidate's: those are caught one by one
        send("broken", {"reason": f"{type(error).__name__}: {error}"})
        raise
    send("end", {})


def _own_output() -> TextIO:
    """Standard output for JSON alone: what plugins, and the libraries below them, print goes to standard error."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _measured(data: Mapping[str, Any], send: Send) -> Iterator[Process]:
    import torch

    from explorer.latency.job import Job
    from explorer.latency.together import measured

    job = Job.from_dict(data)
    torch.set_num_threads(job.threads)
    torch.set_float32_matmul_precision(job.float32_matmul)
    gc.collect()
    gc.freeze()  # torch's objects never die; a collection within a sample need not walk them
    return measured(
        job,
        on_progress=lambda progress: send("progress", asdict(progress)),
        on_timed=lambda record: send("timed", record.to_dict()),
        on_facts=lambda candidate, facts: send("facts", {"candidate": candidate, "facts": facts}),
    )
