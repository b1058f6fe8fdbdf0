"""torch.utils.flop_counter.FlopCounterMode: FLOPs, forward and backward, of the operators that it has a formula for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from explorer.cost.crosscheck import reasons
from explorer.cost.crosscheck.calls import Call, Calls, Core
from explorer.cost.crosscheck.formulas import ATTENTION_KERNELS
from explorer.cost.crosscheck.one_pass import OnePass
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.tool import Reason, Tool, summed
from explorer.cost.parts.failures import foreign

META, CPU = "FlopCounterMode, meta", "FlopCounterMode, CPU"
VERSION = f"torch {torch.__version__}"


def tools(name: str, run: OnePass, ours: Ours) -> list[Tool]:
    """What the mode says of the pass; on meta also against the visible pairs, which it does not know.

    name: META or CPU, the device that the tensors of the pass are of. torch's own attention module runs as it is
    written, not by its fast path, as it does for the ledger.

    Raises: CannotRun.
    """
    counter = FlopCounterMode(display=False)
    with foreign():
        with Calls() as calls, counter:
            run.all()
        printed = counter.get_total_flops()
    found = list(_reasons(calls, run.train, ours))
    told = [Tool(name, VERSION, "matmul_flops", "FLOP", 1, printed, ours.matmul_flops, summed(found))]
    if name == META and ours.matmul_flops_exact is not None:
        hidden = [reasons.MASK.adds(_passes(core) * (core.hidden or 0)) for core in calls.cores]
        exact = ours.matmul_flops_exact
        told.append(Tool(name, VERSION, "matmul_flops_exact", "FLOP", 1, printed, exact, summed([*found, *hidden])))
    return told


def _reasons(calls: Calls, train: bool, ours: Ours) -> Iterator[Reason]:
    for core in calls.cores:
        yield from _core(core, list(calls.within(core)), _passes(core))
    for call in calls.outside():
        if not (call.backward and call.name.removesuffix("_backward") in ATTENTION_KERNELS):
            yield from _operator(call, 3 if train and call.name in ATTENTION_KERNELS else 1)
    for op, flops in ours.custom.items():
        yield reasons.custom_operator(op).adds(-flops)


def _core(core: Core, inside: list[Call], passes: int) -> Iterator[Reason]:
    """What the mode makes of attention: backward, whose operators are not seen as part of it, is twice the forward."""
    if core.name == "grouped":
        # Backward has operators of its own.
        yield reasons.GROUPED.adds(-core.flops)
        return
    counted = sum(_counted(call) for call in inside)
    fused = any(call.name in ATTENTION_KERNELS and not _known(call.op) for call in inside)
    reason = reasons.FUSED_ATTENTION if fused else reasons.WIDENED_ATTENTION
    yield reason.adds(passes * (counted - core.flops))


def _passes(core: Core) -> int:
    return 3 if core.gradient else 1


def _operator(call: Call, times: int) -> Iterator[Reason]:
    if call.flops is None:
        return
    amount = times * (_counted(call) - call.flops)
    if call.name in ATTENTION_KERNELS:
        yield reasons.FUSED_ATTENTION.adds(amount)
    elif call.name.startswith("explorer::"):
        yield reasons.GROUPED.adds(amount)
    elif call.name == "aten::convolution_backward":
        yield reasons.GROUPED_CONVOLUTIONS.adds(amount)
    else:
        yield reasons.unknown_operator(call.op).adds(amount)


def _counted(call: Call) -> int:
    """What the mode says of a call."""
    if call.flops is None or not _known(call.op):
        return 0
    if call.name == "aten::convolution_backward" and call.given["output_mask"][1]:
        # The gradient of the weight, as if every output channel met the inputs of all groups.
        places = call.given["input"] if call.given["transposed"] else call.given["grad_output"]
        once = 2 * places.numel() * call.given["weight"][1:].numel()
        return call.flops + once * (call.given["groups"] - 1)
    return call.flops


@cache
def _known(name: str) -> bool:
    namespace, op = name.split("::")
    packet = getattr(getattr(torch.ops, namespace, None), op, None)
    return packet in flop_registry
