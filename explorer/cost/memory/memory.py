"""Bytes that a workload needs, by what they hold: weights, their gradients, optimizer state, activations; and peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.assembly.construction import dtype_of
from explorer.blueprint.workload import DTYPE_BYTES, STORED_BYTES, Workload
from explorer.cost.stored import Parameters


@dataclass(frozen=True)
class Memory:
    """Bytes. Outside of training gradients, optimizer and activations are 0, and peak is inference_peak.

    weights: parameters as they are stored. gradients: one for each that is trained. optimizer: its state. activations:
    kept from forward to backward. peak: an upper bound for forward and backward, the optimizer's state in place.
    inference_peak: of a forward without gradients.
    Buffers, scratch memory of kernels and of the optimizer's step, and what the allocator keeps aside are not in it.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    inference_peak: int


@dataclass(frozen=True)
class Need:
    """Bytes that a pass needs beside the weights and all that belongs to them, as its parts were observed.

    forward: the most that is alive at once in a forward without gradients, the cache apart: what is held while a part
    runs (its inputs, and what is still needed after it) and the part's `working_set`. cache: after the workload.
    activations, recomputed: see `Activations`. backward: the most of any part's `working_set` with gradients and the
    gradients that wait beside it, of tensors that earlier parts made and later parts read too.
    """

    forward: int
    cache: int = 0
    activations: int = 0
    recomputed: int = 0
    backward: int = 0

    @property
    def inference(self) -> int:
        """Beside the weights, without gradients."""
        return self.forward + self.cache

    @property
    def training(self) -> int:
        """Beside the weights, their gradients and the optimizer's state: an upper bound, since not all activations, nor
        all gradients of weights, are there when the largest part runs backward."""
        return self.activations + self.recomputed + self.backward


def memory(workload: Workload, parameters: Parameters, need: Need) -> Memory:
    """The memory of one settled workload."""
    weights = weight_bytes(workload, parameters)
    inference_peak = weights + need.inference
    if workload.phase != "train":
        return Memory(weights, 0, 0, 0, inference_peak, inference_peak)
    gradients, optimizer = gradient_bytes(workload, parameters), optimizer_bytes(workload, parameters)
    peak = weights + gradients + optimizer + need.training
    return Memory(weights, gradients, optimizer, need.activations, peak, inference_peak)


def weight_bytes(workload: Workload, parameters: Parameters) -> int:
    """Parameters of the workload's dtype stored as its `weight_dtype` says; others, as kept in float32, as they are."""
    return _each(workload, parameters, lambda stored: stored)


def gradient_bytes(workload: Workload, parameters: Parameters) -> int:
    """Gradients in the dtype of their weights; for 8-bit weights, which no backward knows, in that of the workload."""
    return _each(workload, _trained(parameters), lambda stored: _computed(workload, stored))


def optimizer_bytes(workload: Workload, parameters: Parameters) -> int:
    """State of the workload's optimizer for all parameters that are trained; its step counters are left out.

    adamw: two moments in float32 or wider, and a float32 master copy of a narrower weight: 12 bytes for a parameter of
    16 bits, 8 for one of float32. adamw_bf16: two moments in the dtype of the gradient and no copy, as
    `torch.optim.AdamW` does: 4 and 8. none: nothing.
    """
    wide = DTYPE_BYTES["float32"]

    def adamw(stored: int) -> int:
        return 2 * max(stored, wide) + (wide if stored < wide else 0)

    states = {"adamw": adamw, "adamw_bf16": lambda stored: 2 * _computed(workload, stored), "none": lambda stored: 0}
    assert workload.optimizer is not None, workload
    return _each(workload, _trained(parameters), states[workload.optimizer])


def _trained(parameters: Parameters) -> Parameters:
    return {stored: count for stored, count in parameters.items() if stored.trained}


def _each(workload: Workload, parameters: Parameters, per_parameter: Callable[[int], int]) -> int:
    """Sum over all parameters of a number of bytes that follows from the size of the stored weight."""
    own, stored = dtype_of(workload.dtype), STORED_BYTES[workload.weight_dtype or workload.dtype]
    sizes = ((stored if dtype == own else dtype.itemsize, count) for (dtype, _), count in parameters.items())
    return sum(count * per_parameter(size) for size, count in sizes)


def _computed(workload: Workload, stored: int) -> int:
    """Bytes of a number that belongs to a weight and is computed with."""
    return stored if stored >= min(DTYPE_BYTES.values()) else DTYPE_BYTES[workload.dtype]
