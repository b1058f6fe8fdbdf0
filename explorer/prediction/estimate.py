"""Times on a device that is not at hand: its data sheet, and the share of it that programs reach elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from explorer.cost.ledger.rows import Row
from explorer.prediction.hardware import Hardware, Span
from explorer.prediction.prediction import Times

Pick = Callable[[Span], float]


def likely(span: Span) -> float:
    """The point of a span."""
    return span.point


def highest(span: Span) -> float:
    """The upper end of a span."""
    return span.high


def lowest(span: Span) -> float:
    """The lower end of a span."""
    return span.low


@dataclass(frozen=True)
class Reached:
    """What a device reaches: FLOPs and bytes in a microsecond, microseconds of the host for each launch and view."""

    flops: float
    nbytes: float
    dispatch: float
    view: float
    node: float

    @staticmethod
    def of(hardware: Hardware, peak: float, share: Pick, dispatch: Pick) -> Reached:
        """peak: dense TFLOP/s."""
        return Reached(
            flops=peak * 1e6 * share(hardware.gemm),
            nbytes=hardware.bandwidth_gbs * 1e3 * share(hardware.bandwidth),
            dispatch=dispatch(hardware.host.dispatch_us),
            view=hardware.host.view_us,
            node=hardware.host.graph_node_us,
        )

    def times(self, rows: Sequence[Row]) -> Times:
        """A kernel takes as long as its bytes or its products, whichever is longer, and its place in the queue."""
        kernels = [row for row in rows if row.kernels]
        splits = [self._split(row) for row in kernels]
        views = sum(row.kind in ("view", "allocation") for row in rows)
        return Times(
            host=len(kernels) * self.dispatch + views * self.view,
            nodes=len(kernels) * self.node,
            bandwidth=sum(moving for moving, _ in splits),
            math=sum(computing for _, computing in splits),
            last=self.node + sum(splits[-1]) if splits else 0.0,
        )

    def _split(self, row: Row) -> tuple[float, float]:
        flops = row.matmul_flops if row.matmul_flops_exact is None else row.matmul_flops_exact
        moving = (row.read.total + row.written.total) / self.nbytes
        return moving, max(flops / self.flops - moving, 0.0)
