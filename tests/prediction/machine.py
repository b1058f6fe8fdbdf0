"""A machine whose speed is known: what is predicted from its times can be told by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import torch

from explorer.prediction.calibration import Calibration, HeldOut, OfDtype
from explorer.prediction.fitting import rates_from
from explorer.prediction.host import HostCosts, HostFit
from explorer.prediction.kernels import MIB, Kernel, kernels
from explorer.prediction.rates import Rates

HOST = HostFit(HostCosts(once=10.0, overhead=1.0, view=0.25, call=2.0, code=5.0, attention=8.0, cached=3.0))

MET = HeldOut(0.05, 0.1, 1.1, {"prefill": 0.05, "decode": 0.08}, {"a": (1.0, 1.05)})


@dataclass(frozen=True)
class Machine:
    """Every call takes an overhead, every FLOP and every byte its time; far weights and new memory take more."""

    overhead_us: float = 4.0
    flops_us: float = 1e5
    bytes_us: float = 1e4
    far_ns: float = 0.5
    fresh_ns: float = 0.3

    def weight_ns(self, footprint: float) -> float:
        """Nanoseconds of a byte of weights: near up to 8 MiB, far from 32 MiB on."""
        near, way = 1e3 / self.bytes_us, (footprint / MIB - 8) / 24
        return near + (self.far_ns - near) * min(max(way, 0.0), 1.0)

    def us(self, kernel: Kernel) -> float:
        """Microseconds of a kernel."""
        time = self.overhead_us + kernel.flops / self.flops_us + kernel.activations / self.bytes_us
        time += kernel.weights * self.weight_ns(max(kernel.footprint, kernel.weights)) / 1e3
        return time + (kernel.activations / 2 * self.fresh_ns / 1e3 if kernel.group == "fresh" else 0.0)

    def rates(self, itemsize: int = 4, launch_us: float | None = None) -> Rates:
        """What a calibration would find; launch_us: of a host that is not the device."""
        every = kernels(itemsize, 64 * MIB)
        launches = None if launch_us is None else {kernel.key: launch_us for kernel in every if kernel.tiny}
        return rates_from(every, {kernel.key: self.us(kernel) for kernel in every}, launches)


def calibrated(rates: Rates, held_out: HeldOut | None = None, device: str = "cpu", host: HostFit = HOST) -> Calibration:
    """A calibration of the machine in float32."""
    return Calibration(
        device=device,
        name="A machine",
        threads=2,
        torch=torch.__version__,
        by="explorer 0.1.0",
        dtypes={"float32": OfDtype(rates, host, held_out or MET, date.today().isoformat(), clean=1.0, guard="nobody")},
    )
