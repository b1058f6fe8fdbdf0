"""Which attention kernels ran: read off what one real call did, not off what the settings allow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from explorer.latency.clock import Call

# Operators of `scaled_dot_product_attention` by what follows `_SDPA` in their names; of several the first that fits.
_SDPA = "aten::_scaled_dot_product_"
_KERNELS: Mapping[str, str] = MappingProxyType(
    {
        "flash_attention": "flash",
        "efficient_attention": "efficient",
        "cudnn_attention": "cudnn",
        "fused_attention_overrideable": "device",
        "attention_math_for_mps": "device",
        "attention_math": "math",
    }
)
_FLEX = ("FlexAttention", "flex_attention")
_COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
_LOG_LEVEL = "KINETO_LOG_LEVEL"


def attention_kernels(call: Call, eager: Iterable[str] = ()) -> tuple[str, ...]:
    """The attention kernels that one untimed call ran, backward included: each word once, in the order of running.

    flash, efficient, cudnn: torch's fused ones. device: one that the device brings. math: scores and softmax as
    operators of their own, with all scores in memory. flex: `flex_attention`. none: torch's attention was not called;
    what a module writes out itself has no name to be seen.

    eager: what the eager call ran, for a compiled one: a compiler makes of `math` code of its own, without a name.
    """
    operators = _operators(call)
    found = tuple(dict.fromkeys(word for name in operators for word in _words(name)))
    if found:
        return found
    rewritten = "math" in eager and any(name.startswith(_COMPILED) for name in operators)
    return ("math" if rewritten else "none",)


def fell_back(kernels: Iterable[str]) -> str | None:
    """What is to be said where attention ran unfused although torch was free to fuse it; None: nothing."""
    from torch.backends import cuda

    allowed = cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled()
    if "math" not in kernels or not allowed:
        return None
    return "attention fell back to the unfused math kernel: no fused one takes its masks, widths, dropout or dtype"


def _operators(call: Call) -> list[str]:
    """Names of the operators that a call runs, on this thread and on autograd's, in order."""
    from torch.autograd.profiler import profile

    # Not a dispatch mode: beneath one torch runs the eager code of what was compiled.
    with _quiet(), profile(use_cpu=True, use_kineto=False) as watched:
        call()
    return [event.name for event in watched.function_events or ()]


def _words(operator: str) -> Iterator[str]:
    if operator.startswith(_SDPA):
        kernel = operator.removeprefix(_SDPA)
        yield from [word for start, word in _KERNELS.items() if kernel.startswith(start)][:1]
    elif any(name in operator for name in _FLEX):
        yield "flex"


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler's library, which reads this once, writes two lines to the terminal for each use otherwise."""
    before = os.environ.get(_LOG_LEVEL)
    os.environ.setdefault(_LOG_LEVEL, "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LOG_LEVEL]
