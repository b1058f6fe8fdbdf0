"""Rows in order of execution, with the storages that each row reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from explorer.cost.ledger.chains import UNTOUCHED, Access, Touch, fused_bytes
from explorer.cost.ledger.labels import Labels, in_backward
from explorer.cost.ledger.products import NO_PRODUCTS, Products
from explorer.cost.ledger.rows import Counts, Row, Traffic, Work, summed
from explorer.cost.ledger.traffic import Moved, tensors
from explorer.cost.ledger.work import NOTHING

_STILL = frozenset(("view", "allocation", "check", "note"))
"""Kinds of row that launch no kernel and move nothing."""
_NO_TRAFFIC = Traffic()


class Ledger:
    """What a trace has written down so far.

    weights, cache: tensors; bytes of what lies in their storages are counted as such, all others as activations. A
    cache that grows meanwhile is a set of the addresses of its storages, which it keeps alive.
    """

    def __init__(self, weights: Iterable[Tensor] = (), cache: Iterable[Tensor] | Set[int] = ()) -> None:
        self.rows: list[Row] = []
        self._labels = Labels()
        self._pauses = 0
        self._accesses: list[Access] = []
        self._made: set[int] = set()
        self._left: set[int] = set()
        self._known: dict[int, StorageWeakRef] = {}
        self._weights = frozenset(self._storage(tensor) for tensor in weights)
        self._cache = cache if isinstance(cache, Set) else frozenset(self._storage(tensor) for tensor in cache)

    @contextmanager
    def part(self, label: str) -> Iterator[None]:
        """Rows made inside, and those of the backward of what is made inside, are of this part."""
        with self._labels.within(label):
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing is recorded inside."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A call of backward, which another backward may have made: see `Labels`."""
        with self._labels.nested():
            yield

    @property
    def paused(self) -> bool:
        return self._pauses > 0

    def leaves(self, results: Any) -> None:
        """These tensors go on to somebody else, however they are nested: what they hold must be written."""
        self._left.update(self._storage(tensor) for tensor in tensors(results))

    def counts(self, backward: bool | None = None) -> Counts:
        """The sums over the rows of the forward (False), of the backward (True), of both (None)."""
        parts = self.counts_by_part().items()
        chosen = (counts for (_, is_backward), counts in parts if backward is None or backward == is_backward)
        return sum(chosen, Counts())

    def counts_by_part(self) -> dict[tuple[str, bool], Counts]:
        """The sums over the rows of each (part, whether backward), in order of appearance."""
        rows: dict[tuple[str, bool], list[Row]] = {}
        for row in self.rows:
            rows.setdefault((row.part, row.backward), []).append(row)
        fused = fused_bytes(self.rows, self._accesses, self._made, self._left | self._cache)
        return {key: summed(of_part, fused[key]) for key, of_part in rows.items()}

    def totals(self) -> Counts:
        """The sums over all rows so far."""
        return self.counts()

    def note(self, op: str, reason: str) -> None:
        """Why the exact count of what a function was taken apart into is not known."""
        self.record(op, "note", Products(0, None, reason))

    def record(
        self,
        op: str,
        kind: str,
        products: Products = NO_PRODUCTS,
        work: Work = NOTHING,
        access: Access = UNTOUCHED,
        *,
        counted: bool = True,
    ) -> None:
        """One more row."""
        if self._pauses:
            return
        self._accesses.append(access)
        self.rows.append(
            Row(
                op,
                kind,
                products.dense,
                products.exact,
                work,
                self._traffic(access.read),
                self._traffic(access.written),
                kernels=int(kind not in _STILL),
                backward=in_backward(),
                part=self._labels.now(),
                note=products.reason,
                counted=counted,
            )
        )

    def access(self, moved: Moved) -> Access:
        """The storages that a call reads and writes; a result that lies in no argument's storage is made by it."""
        read = tuple(self.touch(*share) for share in moved.read)
        written = tuple(self.touch(*share) for share in moved.written)
        return Access(read, written)

    def make(self, results: Any, given: Iterable[Tensor] = ()) -> None:
        """These results of a call on `given` are new storages, where they are not those of an argument."""
        old = {self._storage(tensor) for tensor in given}
        self._made.update({self._storage(tensor) for tensor in tensors(results)} - old)

    def touch(self, tensor: Tensor, nbytes: int) -> Touch:
        """So many bytes of a tensor, as a place in its storage."""
        start = int(tensor.storage_offset()) * tensor.itemsize
        if tensor.is_contiguous():
            return Touch(self._storage(tensor), start, start + tensor.numel() * tensor.itemsize, nbytes)
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size)
        return Touch(self._storage(tensor), start, start + (last + 1) * tensor.itemsize, nbytes)

    def _storage(self, tensor: Tensor) -> int:
        """A number for the storage of a tensor, which no later storage gets: a weak reference keeps its address."""
        storage = tensor.untyped_storage()
        place: int = storage._cdata
        if place not in self._known:
            self._known[place] = StorageWeakRef(storage)
        return place

    def _traffic(self, touches: Sequence[Touch]) -> Traffic:
        if not touches:
            return _NO_TRAFFIC
        weights = activations = cache = 0
        for touch in touches:
            if touch.storage in self._weights:
                weights += touch.nbytes
            elif touch.storage in self._cache:
                cache += touch.nbytes
            else:
                activations += touch.nbytes
        return Traffic(weights, activations, cache)
