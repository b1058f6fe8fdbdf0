"""What each module of a model takes in one pass: torchinfo's tree of the modules, with our numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import nn

from explorer.assembly.position import Position
from explorer.assembly.residual import Residual
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.counting import settle
from explorer.cost.ledger.rows import Counts
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observing import step_of
from explorer.cost.parts.subject import Subjects, blocks_of
from explorer.cost.parts.whole import WholeCall, trace_whole
from explorer.errors import RefusedError
from explorer.registry.registry import CostRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchinfo.layer_info import LayerInfo


@dataclass(frozen=True)
class Node:
    """A module: its name in the one that holds it, its class, and what it holds.

    counts: of what runs while it is called, what it holds included; None where it stands in the tree before.
    names: of modules that follow one another and are alike in everything; all figures are of one of them.
    """

    names: tuple[str, ...]
    kind: str
    params: int
    counts: Counts | None
    children: tuple[Node, ...] = ()

    @property
    def unnamed(self) -> Node:
        """What must be equal for modules to be alike."""
        return replace(self, names=())


def tree(plan: ModelPlan, workload: Workload, rules: Mapping[str, CostRule]) -> tuple[Node, Workload]:
    """The tree of a model, or of the first block where the plan is no model, and the workload as it was run.

    Raises: RefusedError where the workload cannot run on the plan or on meta, PluginError where a component fails.
    """
    (settled,) = settle(plan, [workload])
    subjects = Subjects(plan)
    of = None if plan.whole else blocks_of(plan)[0]
    subject = subjects.model(settled.dtype) if of is None else subjects.block(of, settled.dtype)
    here = settled.of_source() if of is not None and of.in_encoder else settled
    labels = _ByModule()
    with understood(subject.label) as trouble:
        found = trace_whole(plan, of, subject.dtype, step_of(subject, here), rules, labels.labelled)
    if trouble.reason:
        raise RefusedError(f"{subject.label}: {trouble.reason}")
    assert labels.module is not None, "the pass was run"
    return _Tree(found, labels.names).of(_listed(labels.module)), here


@dataclass
class _ByModule:
    """Labels each operator by the module that is called innermost; those with other methods than forward too."""

    names: dict[int, str] = field(default_factory=dict)
    module: nn.Module | None = None

    @contextmanager
    def labelled(self, call: WholeCall, trace: Trace) -> Iterator[None]:
        self.module = call.module
        with ExitStack() as undo:
            for name, module in call.module.named_modules():
                self.names[id(module)] = name
                for method in _methods(module):
                    _label(undo, trace, module, method, name)
            yield


def _methods(module: nn.Module) -> Sequence[str]:
    if isinstance(module, Residual):
        return ("enter", "read", "write", "leave")
    return ("forward", "embed", "rotate", "bias") if isinstance(module, Position) else ("forward",)


def _label(undo: ExitStack, trace: Trace, module: nn.Module, method: str, name: str) -> None:
    original: Callable[..., Any] = getattr(module, method)

    @wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with trace.part(name):
            return original(*args, **kwargs)

    setattr(module, method, recorded)
    undo.callback(delattr, module, method)


def _listed(module: nn.Module) -> list[LayerInfo]:
    """The modules in the order of the tree, each with how deep it stands in it."""
    from torchinfo import summary

    return summary(module, depth=_DEEPEST, verbose=0).summary_list


_DEEPEST = 1_000


@dataclass(frozen=True)
class _Tree:
    counts: Mapping[str, Counts]
    names: Mapping[int, str]

    def of(self, listed: Sequence[LayerInfo]) -> Node:
        """The first of the list with all that stand deeper behind it."""
        first, *rest = listed
        nodes = tuple(_folded([self.of(inside) for inside in _groups(rest, first.depth + 1)]))
        own = self.counts.get(self.names[first.layer_id], Counts())
        counts = sum((child.counts * len(child.names) for child in nodes if child.counts is not None), own)
        again = first.is_recursive
        name = first.var_name if first.depth else ""
        return Node((name,), first.class_name, first.num_params, None if again else counts, nodes)


def _groups(listed: Sequence[LayerInfo], depth: int) -> Iterator[list[LayerInfo]]:
    """The list cut in front of each that stands at a depth."""
    starts = [index for index, info in enumerate(listed) if info.depth == depth]
    for start, end in zip(starts, [*starts[1:], len(listed)], strict=False):
        yield list(listed[start:end])


def _folded(nodes: Sequence[Node]) -> Iterator[Node]:
    """Those of a numbered list that are alike, wherever they stand in it, as one; others by themselves."""
    groups: dict[Node, list[str]] = {}
    for node in nodes:
        (name,) = node.names
        groups.setdefault(node.unnamed if name.isdecimal() else node, []).append(name)
    for node, names in groups.items():
        yield replace(node, names=tuple(names))
