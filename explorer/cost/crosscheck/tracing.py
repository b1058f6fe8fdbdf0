"""Lets torch's tracer, on which fvcore builds, see a block on meta as it sees one on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_TRACER = torch._C._dispatch_key_parse("Tracer")
_set_tracing_state = vars(torch._C)["_set_tracing_state"]
_SIZES = ("size", "numel", "nelement", "__len__")


@contextmanager
def traceable() -> Iterator[None]:
    """Inside, sizes are integers while torch traces, convolutions are traced on meta, and the tracer does not warn.

    While it traces, torch hands out sizes as tensors, on which code that reckons with them fails; fvcore wants the
    operators alone. On meta it traces what a convolution is made of, and not the convolution.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_plain_sizes())
        stack.enter_context(_Traced())
        yield


@contextmanager
def _plain_sizes() -> Iterator[None]:
    answers: dict[str, Any] = {name: _untraced(getattr(Tensor, name)) for name in _SIZES}
    answers["shape"] = property(_untraced(vars(torch._C.TensorBase)["shape"].__get__))
    own = {name: vars(Tensor)[name] for name in answers if name in vars(Tensor)}
    for name, answer in answers.items():
        setattr(Tensor, name, answer)
    try:
        yield
    finally:
        for name in answers:
            if name in own:
                setattr(Tensor, name, own[name])
            else:
                delattr(Tensor, name)


def _untraced(ask: Callable[..., Any]) -> Callable[..., Any]:
    """The same question, asked while nothing is traced."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        state = torch._C._get_tracing_state()
        if state is None:
            return ask(*args, **kwargs)
        # Inside of an operator the tracer is shut out; its state cannot be touched while it is.
        shut_out = torch._C._dispatch_tls_is_dispatch_key_excluded(_TRACER)
        torch._C._dispatch_tls_set_dispatch_key_excluded(_TRACER, False)
        _set_tracing_state(None)
        try:
            return ask(*args, **kwargs)
        finally:
            _set_tracing_state(state)
            torch._C._dispatch_tls_set_dispatch_key_excluded(_TRACER, shut_out)

    return answer


class _Traced(TorchFunctionMode):
    """Calls `aten::_convolution`, which is what the tracer sees of a convolution on the CPU.

    Two calls that the tracer cannot name are put another way: a view of bits as another dtype is a cast here, and True
    that is scattered is 1. Nothing is computed, and neither is a product.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _AXES:
            return _convolution(_AXES[func], *args, **kwargs)
        if func is Tensor.view and isinstance(args[-1], torch.dtype) and args[-1].itemsize == args[0].itemsize:
            return args[0].to(args[-1])
        if func in _SCATTERS and isinstance(args[-1], bool):
            args = (*args[:-1], int(args[-1]))
        return func(*args, **kwargs)


def _convolution(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if isinstance(padding, str):
        # Torch pads by itself and calls the same again.
        return _BY_AXES[axes](input, weight, bias, stride, padding, dilation, groups)
    strides, paddings, dilations = (
        [value] * axes if isinstance(value, int) else list(value) for value in (stride, padding, dilation)
    )
    return torch._convolution(
        input, weight, bias, strides, paddings, dilations, False, [0] * axes, groups, False, False, True, True
    )


_SCATTERS = (Tensor.scatter, Tensor.scatter_, torch.scatter)
_BY_AXES: Mapping[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_AXES: Mapping[Any, int] = {function: axes for axes, function in _BY_AXES.items()}
