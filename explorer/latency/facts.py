"""What is known of a candidate beside its times: what ran, what compiling took, whether implementations agree, memory.

Looked at after the last round: a profiler or a second cache must not show in a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.arms import Arm, built, no_module
from explorer.latency.clock import Call
from explorer.latency.failure import Failure, attempt
from explorer.latency.kernels_ran import attention_kernels, fell_back
from explorer.latency.parity import Agreement
from explorer.latency.peak import peak_of
from explorer.latency.same_step import Run, compare_runs

EAGER = "eager"


def facts_of(arms: Mapping[str, Arm], device: str) -> dict[str, dict[str, Any]]:
    """Of one candidate, by implementation.

    sdpa: the kernels that attention ran; sdpa_note: what to say of them. parity: how far its results are from those of
    the eager implementation, be that timed or not (see `gated`). peak: what it takes of memory at most (see `Peak`),
    for which it is built once more. Also what `Compiled.facts` says. What could not be found is None, and `<name>_note`
    says why.
    """
    compiled = [arm for impl, arm in arms.items() if impl != EAGER]
    ran = _kernels(_eager(compiled[0]), ())["sdpa"] if compiled else None
    return {impl: _of(arm, ran or (), device) for impl, arm in arms.items()}


def not_looked_at(impl: str, reason: str) -> dict[str, Any]:
    """The facts of an implementation where the process that looked for them was lost."""
    parity = {} if impl == EAGER else {"parity": not_compared(reason, EAGER)}
    return {"sdpa": None, "sdpa_note": reason, "peak": None, "peak_note": reason, **parity}


def gated(compare: Callable[[], Agreement], other: str) -> dict[str, Any]:
    """A parity gate as JSON: `with` what it was compared; where not `ok`, nothing may be said about the two times."""
    found = attempt(compare, "comparing")
    if isinstance(found, Failure):
        return not_compared(found.reason, other)
    told = {name: number if math.isfinite(number) else None for name, number in asdict(found).items()}
    return {**told, "with": other, "ok": found.ok, "reason": found.reason}


def not_compared(reason: str, other: str) -> dict[str, Any]:
    """A gate at which the results could not be compared."""
    return {"error": None, "bound": None, "with": other, "ok": False, "reason": reason}


def _of(arm: Arm, ran: Iterable[str], device: str) -> dict[str, Any]:
    compiled = {} if arm.implemented is None else arm.implemented.facts()
    peak = _told("peak", lambda: asdict(peak_of(partial(_anew, arm, device), device)))
    parity = {} if arm.impl == EAGER else {"parity": gated(partial(_parity, arm), EAGER)}
    return {**_kernels(arm.calls[0], ran), **compiled, **peak, **parity}


def _eager(arm: Arm) -> Call:
    """The first call of the candidate as it is written."""
    return arm.step.through(arm.step.module or no_module)


def _kernels(call: Call, ran: Iterable[str]) -> dict[str, Any]:
    found = _told("sdpa", lambda: list(attention_kernels(call, ran)))
    return {"sdpa_note": fell_back(found["sdpa"] or ()), **found}


def _anew(arm: Arm, device: str) -> Call:
    """The candidate built once more, by the code that this implementation has already."""
    step = built(arm.candidate, device)
    if step.module is None or arm.implemented is None:
        return step.through(no_module)
    return step.through(arm.implemented.of_copy(step.module))


def _parity(arm: Arm) -> Agreement:
    assert arm.implemented is not None, "a bare function is never compiled"
    assert arm.step.module is not None
    eager = Run(arm.step, arm.step.module)
    again = compare_runs(eager, eager)
    if not again.ok and again.error > 0:
        raise MeasureError("not compared: two eager runs differ, as with dropout")
    return compare_runs(Run(arm.step, arm.implemented.call), eager)


def _told(name: str, find: Callable[[], Any]) -> dict[str, Any]:
    """A fact under its name, or None and why it could not be found: no fact costs a candidate its times."""
    found = attempt(find, f"looking for {name}")
    if isinstance(found, Failure):
        return {name: None, f"{name}_note": found.reason}
    return {name: found}
