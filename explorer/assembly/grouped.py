"""Products of rows with the matrix of their group: what the experts of a mixture compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function


def grouped(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """x[i] @ weight[g] for each row i of group g: (N, k), (groups, k, n) -> (N, n).

    The rows of x are sorted by group. offsets (groups,) int32: where the rows of each group end, the last one at N;
    groups may be empty. A weight kept as (groups, n, k), as nn.Linear keeps its own, is given transposed, not copied.
    Offsets that fall, or do not end at N, are refused wherever they are at hand: on the CPU and in the loop below. On
    CUDA asking for them would wait for the device: rows behind the last offset hold there whatever the memory held.

    One operator, `explorer::grouped`, for every dtype and device, on meta, compiled, under autocast, and differentiable
    twice. It is `F.grouped_mm` where torch takes the operands: float32, bfloat16 and float16 with rows of a multiple of
    16 bytes (bfloat16: k and n divide by 8). All else is a loop over the groups, which on CUDA waits for the offsets.
    torch's FlopCounterMode says 0 for it, as for `F.grouped_mm`. A `__torch_function__` sees this as one call.
    """
    tensors = (x, weight, offsets)
    if has_torch_function(tensors):
        return handle_torch_function(grouped, tensors, x, weight, offsets)
    out: Tensor = torch.ops.explorer.grouped.default(x, weight, offsets)
    return out


def _rows(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """What `explorer::grouped` computes."""
    _check(x, weight, offsets)
    on_cpu = x.device.type == "cpu"
    if on_cpu:
        _ends(offsets, len(x))
    # On the CPU torch goes through the groups as the loop here does, but through empty ones too.
    if _torch_takes(x, weight) and not (on_cpu and x.shape[0] < weight.shape[0]):
        return F.grouped_mm(x, weight, offs=offsets)
    out = x.new_empty(x.shape[0], weight.shape[2])
    for group, rows in _groups(offsets, len(x)):
        torch.mm(x[rows], weight[group], out=out[rows])
    return out


def _outer(x: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """What `explorer::grouped_outer` computes: x_g^T y_g of each group's rows, (N, k), (N, n) -> (groups, k, n)."""
    if _torch_takes(x.mT, y):
        out = F.grouped_mm(x.mT, y, offs=offsets)
        return _without_empty(out, offsets) if _capability(x.device) >= _BLACKWELL else out
    out = x.new_zeros(offsets.shape[0], x.shape[1], y.shape[1])
    for group, rows in _groups(offsets, len(x)):
        torch.mm(x[rows].mT, y[rows], out=out[group])
    return out


def _check(x: Tensor, weight: Tensor, offsets: Tensor) -> None:
    fits = x.dim() == 2 and weight.dim() == 3 and x.shape[1] == weight.shape[1]
    if not fits or x.dtype != weight.dtype:
        left, right = (f"{tuple(t.shape)} {t.dtype}" for t in (x, weight))
        raise ValueError(f"grouped takes (N, k) and (groups, k, n) of one dtype, not {left} and {right}")
    if offsets.shape != weight.shape[:1] or offsets.dtype != torch.int32:
        raise ValueError(
            f"grouped takes offsets of shape ({weight.shape[0]},) in int32, not {tuple(offsets.shape)} {offsets.dtype}"
        )


def _groups(offsets: Tensor, rows: int) -> Iterator[tuple[int, slice]]:
    """Every group that has rows, and where they stand."""
    start = 0
    for group, end in enumerate(_ends(offsets, rows)):
        if end > start:
            yield group, slice(start, end)
        start = end


def _ends(offsets: Tensor, rows: int) -> list[int]:
    """The offsets as numbers. Raises: ValueError where they are not those of so many rows."""
    ends: list[int] = offsets.tolist()
    bounds = [0, *ends]
    if bounds[-1] != rows or bounds != sorted(bounds):
        raise ValueError(f"grouped takes offsets that rise to the {rows} rows of x, not {ends}")
    return ends


_TORCH_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ALIGNMENT = 16  # bytes: torch refuses other strides (2.13)


def _torch_takes(left: Tensor, right: Tensor) -> bool:
    fits = left.dtype in _TORCH_DTYPES and _aligned(left) and _aligned(right)
    return fits and left.numel() > 0 and _has_kernel(left.device)


def _has_kernel(device: torch.device) -> bool:
    """torch 2.13: on the CPU, and on CUDA from Ampere on."""
    return device.type == "cpu" or _capability(device) >= (8, 0)


def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def _aligned(matrix: Tensor) -> bool:
    """Whether the rows, or the columns, of a matrix lie one behind the other from aligned places on."""
    (rows, columns), (down, along) = matrix.shape[-2:], matrix.stride()[-2:]
    unit = _ALIGNMENT // matrix.itemsize
    by_rows = along == 1 and down >= max(columns, 1) and down % unit == 0
    by_columns = down == 1 and along >= max(rows, 1) and along % unit == 0
    return (by_rows or by_columns) and matrix.data_ptr() % _ALIGNMENT == 0


_BLACKWELL = (10, 0)


def _without_empty(out: Tensor, offsets: Tensor) -> Tensor:
    """Zeros for the groups without rows, which Blackwell fills with what stood there: pytorch/pytorch#172439."""
    empty = offsets.diff(prepend=offsets.new_zeros(1)) == 0
    return out.masked_fill_(empty.view(-1, 1, 1), 0.0)


def _rows_shape(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    _check(x, weight, offsets)
    return x.new_empty(x.shape[0], weight.shape[2])


def _outer_shape(x: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(offsets.shape[0], x.shape[1], y.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _rows_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, offsets = ctx.saved_tensors
    grad = grad.contiguous()  # the gradient of a sum is one number, repeated with strides of 0
    rows, outer = torch.ops.explorer.grouped.default, torch.ops.explorer.grouped_outer.default
    to_x = rows(grad, weight.mT, offsets) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[1]:
        return to_x, None, None
    # Laid out as the weight is: the gradient of one that was given transposed would else be copied.
    transposed = weight.stride(-2) == 1
    return to_x, outer(grad, x, offsets).mT if transposed else outer(x, grad, offsets), None


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, y, offsets = ctx.saved_tensors
    rows = torch.ops.explorer.grouped.default
    to_x = rows(y, grad.mT, offsets) if ctx.needs_input_grad[0] else None
    to_y = rows(x, grad, offsets) if ctx.needs_input_grad[1] else None
    return to_x, to_y, None


def _under_autocast(operator: Any, device: str) -> Any:
    """The operator in the dtype of the autocast, as torch's own products: float64 stays."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype == torch.float64 else tensor.to(torch.get_autocast_dtype(device))

    def rule(left: Tensor, right: Tensor, offsets: Tensor) -> Any:
        with torch.autocast(device, enabled=False):
            return operator(cast(left), cast(right), offsets)

    return rule


# Not `torch.library.custom_op`: its first call imports the compiler, which takes a second or two.
_LIBRARY = torch.library.Library("explorer", "FRAGMENT")


def _register(name: str, schema: str, compute: Any, shape: Any, backward: Any) -> None:
    _LIBRARY.define(f"{name}{schema}", tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"explorer::{name}", shape, lib=_LIBRARY)
    torch.library.register_autograd(f"explorer::{name}", backward, setup_context=_save, lib=_LIBRARY)
    operator = getattr(torch.ops.explorer, name).default
    for device in ("cpu", "cuda"):
        _LIBRARY.impl(name, _under_autocast(operator, device), f"Autocast{device.upper()}")


_register("grouped", "(Tensor x, Tensor weight, Tensor offsets) -> Tensor", _rows, _rows_shape, _rows_backward)
_register("grouped_outer", "(Tensor x, Tensor y, Tensor offsets) -> Tensor", _outer, _outer_shape, _outer_backward)
