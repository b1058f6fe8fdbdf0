"""Where and how modules are constructed: device, default dtype, random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from explorer.blueprint.workload import DTYPE_BYTES
from explorer.errors import UsageError


@contextmanager
def construction(seed: int, device: torch.device | str, dtype: torch.dtype | str | None) -> Iterator[None]:
    """Modules made inside have their tensors on `device`, parameters in `dtype`, values drawn from `seed`.

    The caller's default dtype and random numbers are as before at the end.
    Raises: UsageError for a device that is not there and a dtype in which no module can compute.
    """
    place = _place(device)
    with ExitStack() as stack:
        stack.enter_context(_default_dtype(_computing(dtype)))
        if place.type == "meta":
            stack.enter_context(_NoValues())
        else:
            stack.enter_context(_seeded(seed, place))
        stack.enter_context(place)
        yield


def _place(device: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device '{device}' cannot be used: {reason}") from error


def dtype_of(name: str) -> torch.dtype:
    """``torch.bfloat16`` for "bfloat16", as workloads name dtypes."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def _computing(dtype: torch.dtype | str | None) -> torch.dtype:
    if dtype is None:
        return torch.get_default_dtype()
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise UsageError(f"parameters cannot be {name}: use {', '.join(DTYPE_BYTES)}")
    return dtype_of(name)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _seeded(seed: int, place: torch.device) -> Iterator[None]:
    if place.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            # The CPU's generator alone: torch.manual_seed would also reseed the devices of the caller.
            torch.default_generator.manual_seed(seed)
            yield
        return
    module = torch.get_device_module(place)
    index = module.current_device() if place.index is None else place.index
    with torch.random.fork_rng(devices=[index], device_type=place.type), module.device(index):
        torch.default_generator.manual_seed(seed)
        module.manual_seed(seed)
        yield


class _NoValues(TorchFunctionMode):
    """Leaves out the filling of tensors: on meta there are no values, and the first random one imports for seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


_FILLS = frozenset(
    {
        *(nn.init.constant_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
        *(Tensor.fill_, Tensor.zero_, Tensor.normal_, Tensor.uniform_),
    }
)
