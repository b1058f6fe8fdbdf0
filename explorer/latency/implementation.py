"""One module in two implementations: as it is written, and as torch's compiler makes it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from explorer.errors import MeasureError, UsageError, is_out_of_memory
from explorer.latency.words import known

if TYPE_CHECKING:
    from torch import nn

Forward = Callable[..., Any]


class Implemented(Protocol):
    """A module in one implementation. call: takes what the module takes."""

    call: Forward

    def of_copy(self, module: nn.Module) -> Forward:
        """The call of a copy of the module (equal but for its weights' place), by the same code."""

    def compiles(self) -> int:
        """How many graphs its calls have had compiled so far."""

    def facts(self) -> dict[str, Any]:
        """What to say of it beside its times: see `Compiled.facts`; {} for `eager`."""


def implement(module: nn.Module, impl: str) -> Implemented:
    """A module as `eager` or `compile` (`torch.compile` with its defaults).

    Only what is timed belongs through `call`: every other shape or length (filling a cache) would compile once more.
    Never call `torch._dynamo.reset()` in between: it throws away what all others have compiled.

    Raises: UsageError for another word, MeasureError where torch cannot compile on this machine.
    """
    (name,) = checked((impl,))
    return _IMPLEMENTATIONS[name](module)


def checked(impls: Iterable[str]) -> tuple[str, ...]:
    """The words, each once. Raises UsageError, listing the words, for others and for none."""
    words = tuple(dict.fromkeys(known("impl", word, _IMPLEMENTATIONS) for word in impls))
    if not words:
        raise UsageError(f"no impl is named; it is one of: {', '.join(_IMPLEMENTATIONS)}")
    return words


class Eager:
    """The module itself."""

    def __init__(self, module: nn.Module) -> None:
        self.call: Forward = module

    def of_copy(self, module: nn.Module) -> Forward:
        return module

    def compiles(self) -> int:
        return 0

    def facts(self) -> dict[str, Any]:
        return {}


class Compiled:
    """`torch.compile` of a module, apart from every other one in the process.

    torch keeps compiled code with the Python code that it came from, gives up after `recompile_limit` versions of that
    and takes shapes that differ between versions for dynamic ones: the ninth block of a comparison would silently run
    eagerly, and the second one as code for any shape. So each gets Python code of its own, with a name of its own.
    """

    def __init__(self, module: nn.Module, backend: str = "inductor") -> None:
        import torch

        _start_compiler(_device_of(module), backend)
        self._log = _Log()
        self._log.listen()
        weakref.finalize(self, self._log.leave)
        self._compiled = torch.compile(_own_code(), backend=backend)
        self.call: Forward = self.of_copy(module)

    def of_copy(self, module: nn.Module) -> Forward:
        from torch._dynamo.exc import TorchDynamoException

        compiled, log = self._compiled, self._log

        def call(*args: Any, **kwargs: Any) -> Any:
            log.running = True
            try:
                return compiled(module, *args, **kwargs)
            except TorchDynamoException as error:
                raise _not_compiled(error) from error
            finally:
                log.running, log.called = False, True

        return call

    def compiles(self) -> int:
        return self._log.compiles

    def facts(self) -> dict[str, Any]:
        """Seconds and counts so far; they are in no latency but that of the first call.

        compile_s: seconds of compiling, forward and backward, recompiling included; what torch found compiled on disk
        takes less. compiles: graphs, more than one where the module breaks the graph or was compiled again. recompiles:
        those after the first call; the samples that they fell in are dropped. compile_note: why these are not what they
        seem.
        """
        from torch._dynamo import config

        log = self._log
        if not log.is_listening():
            lost = "compiling was not watched to the end: torch's compile state was reset"
            return {"compile_s": None, "compiles": None, "recompiles": None, "compile_note": lost}
        note = None
        if log.compiles >= config.recompile_limit:
            note = f"compiled {log.compiles} times, where torch gives up: later calls may have run eagerly"
        counts = {"compile_s": log.seconds, "compiles": log.compiles, "recompiles": log.recompiles}
        return {**counts, "compile_note": note}


_IMPLEMENTATIONS: dict[str, Callable[[nn.Module], Implemented]] = {"eager": Eager, "compile": Compiled}


@dataclass
class _Log:
    """Compilations that a module's own calls set off. A backward is compiled later, under its forward's id."""

    running: bool = False
    called: bool = False
    seconds: float = 0.0
    compiles: int = 0
    recompiles: int = 0
    ids: set[str] = field(default_factory=set)
    since: float | None = None

    def start(self, event: Any) -> None:
        if self.running and event.compile_id not in self.ids:
            self.ids.add(event.compile_id)
            self.compiles += 1
            self.recompiles += self.called
        if self.running or event.compile_id in self.ids:
            self.since = time.perf_counter()

    def end(self, event: Any) -> None:
        if self.since is not None:
            self.seconds += time.perf_counter() - self.since
            self.since = None

    def listen(self) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self.start)
        callback_handler.register_end_callback(self.end)

    def leave(self) -> None:
        from torch._dynamo.callback import callback_handler

        if self.is_listening():
            callback_handler.remove_start_callback(self.start)
            callback_handler.remove_end_callback(self.end)

    def is_listening(self) -> bool:
        from torch._dynamo.callback import callback_handler

        return self.start in callback_handler.start_callbacks


def _own_code() -> Forward:
    def run(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    run.__code__ = run.__code__.replace(co_name=f"run_{uuid4().hex}")
    return run


def _device_of(module: nn.Module) -> str:
    return next((str(tensor.device) for tensor in (*module.parameters(), *module.buffers())), "cpu")


@cache
def _start_compiler(device: str, backend: str) -> None:
    """Compile next to nothing, once: seconds of loading the compiler are no block's, and a machine without one says so.

    Raises: MeasureError.
    """
    import torch

    try:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1, device=device))
    except Exception as error:  # whatever a toolchain that is not there raises
        raise _not_compiled(error) from error


def _not_compiled(error: Exception) -> Exception:
    """What a failure inside the compiler says; running out of memory stays what it is."""
    cause = getattr(error, "inner_exception", None) or error
    if is_out_of_memory(cause):
        return cause
    first_line = next(iter(str(cause).splitlines()), "")
    hint = "; install g++ or clang, or name one in CXX" if "C++ compiler" in first_line else ""
    return MeasureError(f"not compiled: {type(cause).__name__}: {first_line}{hint}")
