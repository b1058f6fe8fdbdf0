"""What a trace collects: one row per operator call, and the sums over rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Traffic:
    """Bytes that a call reads, or writes, by what they are: numel x itemsize of each tensor.

    weights, cache: of storages that the trace was told to be such. activations: all others, gradients included.
    """

    weights: int = 0
    activations: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.cache


@dataclass(frozen=True)
class Work:
    """Element-wise operations of a call: one per output element, in a reduction one per input element.

    cheap: additions, products, comparisons, choices. transcendental: exp, tanh, sqrt and the like, GELU and SiLU too:
    still one per element. reduction: elements that are summed, compared or put in order.
    """

    cheap: int = 0
    transcendental: int = 0
    reduction: int = 0

    @property
    def total(self) -> int:
        return self.cheap + self.transcendental + self.reduction

    def __add__(self, other: Work) -> Work:
        return Work(
            self.cheap + other.cheap,
            self.transcendental + other.transcendental,
            self.reduction + other.reduction,
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.cheap * times, self.transcendental * times, self.reduction * times)


@dataclass(frozen=True)
class OpCost:
    """What one call of a plugin's own operator costs, as its rule in `register_cost_rules` says it.

    matmul_flops: of matrix products, 1 multiply-add = 2. matmul_flops_exact: of visible query-key pairs only; None: as
    `matmul_flops`, or, with a `reason`, not known. cheap_ops, transcendental_ops, reduction_ops: as in `Work`.
    read_bytes: by name, of arguments that are not read whole; written_bytes: of arguments that are not overwritten
    whole. All other arguments are read, and all results written: numel x itemsize.
    """

    matmul_flops: int = 0
    matmul_flops_exact: int | None = None
    cheap_ops: int = 0
    transcendental_ops: int = 0
    reduction_ops: int = 0
    read_bytes: Mapping[str, int] = field(default_factory=dict)
    written_bytes: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Row:
    """One operator call.

    op: `aten::mm`, or the name of a fused function. kind: its family: product, fused, pointwise, norm, view ...
    matmul_flops: 1 multiply-add = 2, with the full attention rectangle; matmul_flops_exact: visible query-key pairs
    only, None where they are not known, `note` says why. work: element-wise operations. read, written: bytes.
    kernels: launched; 0 for views, allocations and checks.
    backward: ran inside the autograd engine (a recomputed forward too). part: the label that it, or the forward whose
    gradient it is, ran under. counted: False for an operator that has no rule: its FLOPs and work say nothing.
    """

    op: str
    kind: str
    matmul_flops: int = 0
    matmul_flops_exact: int | None = 0
    work: Work = Work()
    read: Traffic = Traffic()
    written: Traffic = Traffic()
    kernels: int = 0
    backward: bool = False
    part: str = ""
    note: str | None = None
    counted: bool = True


@dataclass(frozen=True)
class Counts:
    """Sums over rows. FLOPs, operations, bytes and kernels as in `Row`.

    matmul_flops_exact: None, with `exact_reason`, as soon as one row's is.
    fused_bytes: as moved_bytes, with each chain of element-wise rows moving its ends only.
    incomplete: operators without a rule and their calls: what they compute is not in the sums, their bytes are.
    """

    matmul_flops: int = 0
    matmul_flops_exact: int | None = 0
    cheap_ops: int = 0
    transcendental_ops: int = 0
    reduction_ops: int = 0
    read_weights: int = 0
    read_activations: int = 0
    read_cache: int = 0
    written_weights: int = 0
    written_activations: int = 0
    written_cache: int = 0
    fused_bytes: int = 0
    kernels: int = 0
    exact_reason: str | None = None
    incomplete: tuple[tuple[str, int], ...] = ()

    @property
    def elementwise_ops(self) -> int:
        """Cheap, transcendental and reduction operations together."""
        return self.cheap_ops + self.transcendental_ops + self.reduction_ops

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written in eager mode, every kernel by itself."""
        read = self.read_weights + self.read_activations + self.read_cache
        return read + self.written_weights + self.written_activations + self.written_cache

    def __add__(self, other: Counts) -> Counts:
        reasons = dict.fromkeys(reason for reason in (self.exact_reason, other.exact_reason) if reason)
        calls: dict[str, int] = {}
        for op, times in (*self.incomplete, *other.incomplete):
            calls[op] = calls.get(op, 0) + times
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        exact = (self.matmul_flops_exact, other.matmul_flops_exact)
        known = None if None in exact else sum(flops for flops in exact if flops is not None)
        return Counts(
            **sums,
            matmul_flops_exact=known,
            exact_reason=_joined(reasons),
            incomplete=tuple(calls.items()),
        )

    def __mul__(self, times: int) -> Counts:
        """The same work so many times; nothing at all for 0."""
        if not times:
            return Counts()
        exact = None if self.matmul_flops_exact is None else self.matmul_flops_exact * times
        return Counts(
            **{name: getattr(self, name) * times for name in _SUMMED},
            matmul_flops_exact=exact,
            exact_reason=self.exact_reason,
            incomplete=tuple((op, calls * times) for op, calls in self.incomplete),
        )


_SUMMED = (
    "matmul_flops", "cheap_ops", "transcendental_ops", "reduction_ops", "read_weights", "read_activations",
    "read_cache", "written_weights", "written_activations", "written_cache", "fused_bytes", "kernels",
)  # fmt: skip


def summed(rows: Iterable[Row], fused_bytes: int) -> Counts:
    """The sums over `rows`; fused_bytes: of their chains, which single rows do not tell."""
    sums = dict.fromkeys(_SUMMED, 0)
    sums["fused_bytes"] = fused_bytes
    exact = 0
    reasons: dict[str, None] = {}
    unknown: dict[str, int] = {}
    for row in rows:
        _add(sums, row)
        if row.matmul_flops_exact is None:
            reasons[row.note or f"{row.op}: which pairs are visible is not known"] = None
        else:
            exact += row.matmul_flops_exact
        if not row.counted:
            unknown[row.op] = unknown.get(row.op, 0) + 1
    return Counts(
        **sums,
        matmul_flops_exact=None if reasons else exact,
        exact_reason=_joined(reasons),
        incomplete=tuple(unknown.items()),
    )


def _add(sums: dict[str, int], row: Row) -> None:
    sums["matmul_flops"] += row.matmul_flops
    sums["cheap_ops"] += row.work.cheap
    sums["transcendental_ops"] += row.work.transcendental
    sums["reduction_ops"] += row.work.reduction
    sums["read_weights"] += row.read.weights
    sums["read_activations"] += row.read.activations
    sums["read_cache"] += row.read.cache
    sums["written_weights"] += row.written.weights
    sums["written_activations"] += row.written.activations
    sums["written_cache"] += row.written.cache
    sums["kernels"] += row.kernels


def _joined(reasons: Iterable[str]) -> str | None:
    """Each reason once, in order of appearance."""
    return "; ".join(dict.fromkeys(part for reason in reasons for part in reason.split("; "))) or None


def total(rows: Iterable[Row]) -> Counts:
    """The sums over `rows`, without their fused_bytes: a row does not know its chain."""
    return summed(rows, 0)
