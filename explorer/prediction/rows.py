"""The ledger's rows of one block on one workload: what a prediction adds up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from explorer.assembly.attend import attend
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.counting import settle
from explorer.cost.ledger.entered import entered
from explorer.cost.ledger.rows import Row
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import Rules
from explorer.cost.parts.observing import step_of, unseen
from explorer.cost.parts.part import Role
from explorer.cost.parts.subject import BlockName, Subjects, blocks_of
from explorer.cost.parts.whole import WholeCall, labelled_by_part, traced_whole
from explorer.errors import MeasureError, UsageError, did_you_mean

CALL = "call"
"""Kind of the rows that stand for a call of a module: they launch and move nothing, but take time on the host."""
_OUTSIDE = ("enter", "leave")


def rows_of(plan: ModelPlan, block: str, workload: Workload, rules: Rules) -> list[Row]:
    """The rows of one pass of a block as its cost counts them, in order; then one for each call of a module.

    Attention, one row of a cost, is here what it runs: a kernel alone where that knows the rule of what is visible,
    else the mask too that says it, with all pairs computed; with a soft cap, single products.
    The block stands alone, as it is measured: no layers before it, and a prefill without a context fills no cache. What
    enters and leaves the residual stream belongs to the model. Views are there too, and calls of modules (kind `call`):
    they cost time on the host. Empty where the block does not run: that of an encoder whose output stands in a cache.
    block: its name in reports. rules: what plugins say of their own operators.

    Raises: MeasureError where a block cannot be traced, for the reason; UsageError for a block that is not there;
    RefusedError and PluginError as counting does.
    """
    named = _named(plan, block)
    (workload,) = settle(plan, [workload])
    if named.in_encoder:
        if workload.source_is_cached:
            return []
        workload = workload.of_source()
    subject = Subjects(plan).block(named, workload.dtype)
    calls: list[Row] = []
    reason = unseen(subject, workload)
    with understood(block) as trouble:
        if not reason:
            step = step_of(subject, workload)
            if workload.phase == "prefill" and workload.context == workload.tokens:
                step = replace(step, held=None)
            trace = traced_whole(plan, named, subject.dtype, step, rules, _Calls(calls).labelled)
    reason = reason or trouble.reason
    if reason:
        raise MeasureError(f"not predicted: {reason}")
    outside = {Role(named.stack.name, name).label for name in _OUTSIDE}
    return [row for row in (*trace.rows, *calls) if row.part not in outside]


class _Calls:
    """Notes each module that is called while the parts are labelled."""

    def __init__(self, calls: list[Row]) -> None:
        self._calls = calls

    @contextmanager
    def labelled(self, call: WholeCall, trace: Trace) -> Iterator[None]:
        """Labels as usual, and a row for each module called."""

        def note(module: Any, args: Any) -> None:
            self._calls.append(Row(type(module).__name__, CALL))

        hook = register_module_forward_pre_hook(note)
        try:
            with labelled_by_part(call, trace), _AttentionAsItRuns():
                yield
        finally:
            hook.remove()


class _AttentionAsItRuns(TorchFunctionMode):
    """Lets a trace see what is called inside of `attend` in its place."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is attend:
            with self:
                return entered(func)(*args, **kwargs or {})
        return func(*args, **kwargs or {})


def _named(plan: ModelPlan, label: str) -> BlockName:
    found = {block.label: block for block in blocks_of(plan)}
    if label not in found:
        guess = did_you_mean(label, found)
        raise UsageError(f"no block is called {label!r}; there are {', '.join(found)}{f'; {guess}' if guess else ''}")
    return found[label]
