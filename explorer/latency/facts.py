"""What is known of a candidate beside its times: what ran, what compiling took, whether implementations agree, memory.

Looked at after the last round: a profiler or a second cache must not show in a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from explorer.latency.arms import Arm, built, no_module
from explorer.latency.clock import Call
from explorer.latency.failure import Failure, attempt
from explorer.latency.kernels_ran import attention_kernels, fell_back
from explorer.latency.parity import Agreement, compare, reduction
from explorer.latency.peak import peak_of

EAGER = "eager"


def facts_of(arms: Mapping[str, Arm], device: str) -> dict[str, dict[str, Any]]:
    """Of one candidate, by implementation.

    sdpa: the kernels that attention ran; sdpa_note: what to say of them. parity: how far its results are from those of
    the eager implementation (see `shown`). peak: what it takes of memory at most (see `Peak`), for which it is built
    once more. Also what `Compiled.facts` says. What could not be found is None, and `<name>_note` says why.
    """
    eager = arms.get(EAGER)
    ran = () if eager is None else _kernels(eager, ()).get("sdpa") or ()
    return {impl: _of(arm, eager, ran, device) for impl, arm in arms.items()}


def shown(agreement: Agreement, other: str) -> dict[str, Any]:
    """A parity gate as JSON: `with` what it was compared; where not `ok`, nothing may be said about the two times."""
    error = agreement.error if math.isfinite(agreement.error) else None
    return {**asdict(agreement), "error": error, "with": other, "ok": agreement.ok, "reason": agreement.reason}


def not_compared(reason: str, other: str) -> dict[str, Any]:
    """A gate at which the results could not be compared."""
    return {"error": None, "bound": None, "with": other, "ok": False, "reason": reason}


def _of(arm: Arm, eager: Arm | None, ran: Iterable[str], device: str) -> dict[str, Any]:
    compiled = {} if arm.implemented is None else arm.implemented.facts()
    peak = _told("peak", lambda: asdict(peak_of(partial(_anew, arm, device), device)))
    facts = {**_kernels(arm, ran), **compiled, **peak}
    if eager is not None and arm is not eager:
        facts |= _told("parity", partial(_parity, arm, eager))
    return facts


def _kernels(arm: Arm, ran: Iterable[str]) -> dict[str, Any]:
    found = _told("sdpa", lambda: list(attention_kernels(arm.calls[0], ran)))
    return {"sdpa_note": fell_back(found["sdpa"] or ()), **found}


def _anew(arm: Arm, device: str) -> Call:
    """The candidate built once more, by the code that this implementation has already."""
    step = built(arm.candidate, device)
    if step.module is None or arm.implemented is None:
        return step.through(no_module)
    return step.through(arm.implemented.of_copy(step.module))


def _parity(arm: Arm, eager: Arm) -> dict[str, Any]:
    step, module = eager.step, eager.step.module
    assert module is not None
    assert arm.implemented is not None
    ours, theirs = (partial(step.result, forward) for forward in (arm.implemented.call, module))
    dtype = next((weight.dtype for weight in module.parameters()), torch.get_default_dtype())
    length = reduction(module, step.inputs)
    if not compare(theirs, theirs, step.inputs, dtype, length).ok:
        return not_compared("not compared: two eager runs differ, as with dropout", EAGER)
    return shown(compare(ours, theirs, step.inputs, dtype, length), EAGER)


def _told(name: str, find: Callable[[], Any]) -> dict[str, Any]:
    """A fact under its name, or None and why it could not be found: no fact costs a candidate its times."""
    found = attempt(find, f"looking for {name}")
    if isinstance(found, Failure):
        return {name: None, f"{name}_note": found.reason}
    return {name: found}
