"""What one pass calls: operators with their shapes, in which module and which function. Nothing of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from explorer.cost.crosscheck.watching import Flow, Functions, Operators, tensors_of


@dataclass(frozen=True)
class Core:
    """One call of a function that torch sees as several operators, or as one that it does not know.

    flops: its products by formula, with all pairs; hidden: those of them whose pairs no query sees, None: not known.
    gradient: whether backward runs through it. called: the modules in whose forward it ran, the outermost first.
    """

    number: int
    name: str
    flops: int
    hidden: int | None
    gradient: bool
    called: tuple[nn.Module, ...]


@dataclass(frozen=True)
class Call:
    """One operator call. given, out: with shapes in the place of tensors.

    flops: of its products by formula; None: an operator that is not torch's own and has none.
    called: as in Core. core: number of the core that it is part of. whole: as in Flow.
    """

    op: str
    given: Mapping[str, Any]
    out: Any
    flops: int | None
    backward: bool
    called: tuple[nn.Module, ...]
    core: int | None
    whole: str | None = None

    @property
    def name(self) -> str:
        """`aten::baddbmm` for `aten::baddbmm_` too."""
        return self.op.removesuffix("_")


@dataclass(frozen=True)
class ModuleCall:
    """One forward of a module. out: shape of its first result."""

    module: nn.Module
    out: torch.Size | None


@dataclass
class Calls:
    """`with Calls() as calls: module(x)` collects what is called, in order, in backward too.

    Under `torch.inference_mode()` operators come as a module writes them (linear, matmul, einsum): torch takes apart
    what it composes of others only where autograd is on.
    """

    operators: list[Call] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    modules: list[ModuleCall] = field(default_factory=list)
    _flows: list[Flow] = field(default_factory=list)  # of each operator; they keep tensors alive, so that ids stay
    _inside: list[nn.Module] = field(default_factory=list)
    _core: int | None = None
    _modes: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Calls:
        before = nn.modules.module.register_module_forward_pre_hook(self._entered)
        after = nn.modules.module.register_module_forward_hook(self._left, always_call=True)
        self._modes.callback(before.remove)
        self._modes.callback(after.remove)
        self._modes.enter_context(Functions(self))
        self._modes.enter_context(Operators(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._modes.close()

    def outside(self) -> Iterator[Call]:
        """Operators that are part of no core."""
        return (call for call in self.operators if call.core is None)

    def within(self, core: Core) -> Iterator[Call]:
        """Operators of forward that a core is taken apart into."""
        return (call for call in self.operators if call.core == core.number)

    def unread(self, out: Any) -> set[int]:
        """Places in `operators` of calls whose results lead neither to `out` nor into a tensor that was there."""
        alive, found = {id(tensor) for tensor in tensors_of(out)}, set[int]()
        for place, flow in reversed(list(enumerate(self._flows))):
            if flow.changes or any(id(tensor) in alive for tensor in flow.makes):
                alive.update(id(tensor) for tensor in flow.reads)
            else:
                found.add(place)
        return found

    # What the modes tell.

    def begin(self) -> bool:
        """Operators from here on are part of a core; False where they are so already."""
        if self._core is not None:
            return False
        self._core = len(self.cores)
        return True

    def end(self) -> None:
        """No more operators of the core."""
        self._core = None

    def core(self, name: str, flops: int, hidden: int | None, out: Tensor) -> None:
        self.cores.append(Core(len(self.cores), name, flops, hidden, out.requires_grad, tuple(self._inside)))

    def operator(self, op: str, given: Mapping[str, Any], out: Any, flops: int | None, flow: Flow) -> None:
        self._flows.append(flow)
        backward = torch._C._current_graph_task_id() != -1
        core = None if backward else self._core
        self.operators.append(Call(op, given, out, flops, backward, tuple(self._inside), core, flow.whole))

    def _entered(self, module: nn.Module, args: Any) -> None:
        self._inside.append(module)

    def _left(self, module: nn.Module, args: Any, out: Any) -> None:
        self._inside.pop()
        shape = next((tensor.shape for tensor in tensors_of(out)), None)
        self.modules.append(ModuleCall(module, shape))
