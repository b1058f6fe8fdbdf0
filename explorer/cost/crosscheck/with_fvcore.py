"""fvcore's FlopCountAnalysis: multiply-adds, which it prints as flops, of a trace of forward; as it comes, and with our
handles."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from math import floor, prod
from typing import Any

from explorer.cost.crosscheck import reasons
from explorer.cost.crosscheck.calls import Call, Calls, Core
from explorer.cost.crosscheck.handles import handles
from explorer.cost.crosscheck.one_pass import OnePass
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.tool import Reason, Tool, summed
from explorer.cost.crosscheck.tracing import traceable
from explorer.cost.parts.failures import foreign

NAME, WITH_HANDLES = "fvcore", "fvcore, our handles"
UNIT = "MAC"


def tools(run: OnePass, calls: Calls, unread: set[int], ours: Ours) -> list[Tool]:
    """Both numbers. calls: of the forward, in inference mode; unread: places of those whose results nobody reads.

    Raises: CannotRun, where torch's tracer fails.
    """
    with foreign(), traceable(), run.mode():
        from fvcore.nn import FlopCountAnalysis  # type: ignore[import-untyped]

        def analysis() -> Any:
            found = FlopCountAnalysis(run.module, run.inputs)
            return found.unsupported_ops_warnings(False).uncalled_modules_warnings(False)

        plain, handled = analysis(), analysis()
        printed, left_out = plain.total(), plain.unsupported_ops()
        handled.set_op_handle(**handles(left_out, _taken_apart(calls)))
        corrected, unknown = handled.total(), handled.unsupported_ops()
    back = reasons.BACKWARD.adds(-ours.backward)
    first = [back, *_reasons(calls, unread, ours)]
    second = [back, *_widened(calls), *_untraced(calls, unread), *_composed(calls), *_custom(ours)]
    return [_tool(NAME, printed, ours, first, left_out), _tool(WITH_HANDLES, corrected, ours, second, unknown)]


def _tool(name: str, printed: float, ours: Ours, reasons: list[Reason], unsupported: Mapping[str, int]) -> Tool:
    note = None
    if unsupported:
        note = "no handle for " + ", ".join(
            f"{op.removeprefix('aten::')} x{n}" for op, n in sorted(unsupported.items())
        )
    return Tool(
        name, version("fvcore"), "matmul_flops", UNIT, 2, int(printed), ours.matmul_flops, summed(reasons), note
    )


def _reasons(calls: Calls, unread: set[int], ours: Ours) -> Iterator[Reason]:
    for core in calls.cores:
        yield _core(core, list(calls.within(core)))
    for place, call in enumerate(calls.operators):
        if call.core is None and call.flops is not None and not (place in unread and _macs(call)):
            yield _operator(call)
    yield from _untraced(calls, {place for place in unread if _macs(calls.operators[place])})
    yield from _custom(ours)


def _untraced(calls: Calls, unread: set[int]) -> Iterator[Reason]:
    for place in sorted(unread):
        call = calls.operators[place]
        if call.core is None:
            yield reasons.UNREAD.adds(-(call.flops or 0))


def _core(core: Core, inside: list[Call]) -> Reason:
    amount = sum(2 * _macs(call) for call in inside) - core.flops
    if core.name == "grouped":
        return reasons.GROUPED.adds(amount)
    fused = any(call.name == "aten::scaled_dot_product_attention" for call in inside)
    return (reasons.FUSED_ATTENTION if fused else reasons.WIDENED_ATTENTION).adds(amount)


def _operator(call: Call) -> Reason:
    amount = 2 * _macs(call) - (call.flops or 0)
    if call.whole is not None:
        return reasons.unknown_operator(call.whole).adds(amount)
    if call.name.endswith("_norm"):
        return reasons.NORMS.adds(amount)
    return _BY_OPERATOR.get(call.name, reasons.unknown_operator(call.op)).adds(amount)


def _widened(calls: Calls) -> Iterator[Reason]:
    """What attention counts above its formula, where it asks for more channels or one more key."""
    for core in calls.cores:
        fused = [call for call in calls.within(core) if call.name == "aten::scaled_dot_product_attention"]
        if fused and core.name == "attend":
            products = sum(call.flops or 0 for call in calls.within(core))
            yield reasons.WIDENED_ATTENTION.adds(products - core.flops)


def _composed(calls: Calls) -> Iterator[Reason]:
    """Products inside of operators that torch composes, and that nobody has a handle for."""
    for call in calls.outside():
        if call.whole is not None:
            yield reasons.unknown_operator(call.whole).adds(-(call.flops or 0))


def _taken_apart(calls: Calls) -> set[str]:
    return {call.whole for call in calls.outside() if call.whole is not None and call.flops}


def _custom(ours: Ours) -> Iterator[Reason]:
    for op, flops in ours.custom_forward.items():
        yield reasons.custom_operator(op).adds(-flops)


def _macs(call: Call) -> int:
    """What fvcore says of a call, by its handles of version 0.1.5.post20221221."""
    rule = _RULES.get(call.whole or call.op)
    return 0 if rule is None else rule(call)


def _exact(call: Call) -> int:
    return (call.flops or 0) // 2


def _matmul(call: Call) -> int:
    """prod(left) x the last axis of the right one: a batch that only the right one has is not there."""
    return prod(call.given["self"]) * int(call.given["other" if "other" in call.given else "mat2"][-1])


def _einsum(call: Call) -> int:
    letters: dict[str, str] = {}
    for letter in filter(str.isalpha, call.given["equation"]):
        letters.setdefault(letter, string.ascii_lowercase[len(letters)])
    equation = "".join(letters.get(sign, sign) for sign in call.given["equation"].replace(" ", ""))
    if equation in ("abc,abd->acd", "abc,adc->adb"):
        return _exact(call)
    return floor(float(f"{call.flops or 0:.3e}") / 2)


def _norm(affine: str) -> Callable[[Call], int]:
    return lambda call: prod(call.given["input"]) * (5 if call.given.get(affine) is not None else 4)


def _batch_norm(call: Call) -> int:
    if call.given["training"]:
        return _norm("weight")(call)
    return prod(call.given["input"]) * (2 if call.given.get("weight") is not None else 1)


_RULES: Mapping[str, Callable[[Call], int]] = {
    **dict.fromkeys(("aten::linear", "aten::addmm", "aten::bmm"), _exact),
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::_convolution"), _exact),
    **dict.fromkeys(("aten::matmul", "aten::mm"), _matmul),
    "aten::einsum": _einsum,
    "aten::layer_norm": _norm("weight"),
    "aten::group_norm": _norm("weight"),
    "aten::instance_norm": _norm("weight"),
    "aten::batch_norm": _batch_norm,
}
_BY_OPERATOR: Mapping[str, reasons.Known] = {
    "aten::scaled_dot_product_attention": reasons.FUSED_ATTENTION,
    "aten::matmul": reasons.BROADCAST,
    "aten::einsum": reasons.EINSUM,
}
