"""Measuring leaves no trace in the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# Device types whose random state torch keeps per device index; the CPU's is always restored.
_INDEXED = ("cuda", "xpu")


@contextmanager
def undisturbed(device: str) -> Iterator[None]:
    """Torch's random states, thread count and grad mode are afterwards as they were before."""
    import torch

    where = torch.device(device)
    threads = torch.get_num_threads()
    indices: list[int] = []
    if where.type in _INDEXED:
        indices = [torch.accelerator.current_device_index() if where.index is None else where.index]
    grad = torch.is_grad_enabled()
    with torch.random.fork_rng(devices=indices), torch.set_grad_enabled(grad):
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
