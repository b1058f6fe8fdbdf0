"""Rates from the times of kernels: they give back what the machine is like, and what is counted is what runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from explorer.cost.ledger.rows import Row, Traffic, Work
from explorer.cost.ledger.trace import Trace
from explorer.prediction.fitting import rates_from
from explorer.prediction.kernels import FRESH_FROM, MIB, Draw, Kernel, kernels
from explorer.prediction.rates import Rates, Split
from explorer.prediction.working_set import WorkingSet

ALONE = WorkingSet(1, 0)
SMALL = [kernel for kernel in kernels(4, 8 * MIB) if kernel.flops < 3e9 and kernel.activations < 60 * MIB]


def product(rows: int, inner: int, outer: int) -> Row:
    return Row(
        "aten::mm", "product", 2 * rows * inner * outer, 2 * rows * inner * outer,
        read=Traffic(weights=4 * inner * outer, activations=4 * rows * inner),
        written=Traffic(activations=4 * rows * outer), kernels=1,
    )  # fmt: skip


def elementwise(op: str, kind: str, nbytes: int, work: Work | None = None) -> Row:
    half = Traffic(activations=nbytes // 2)
    return Row(op, kind, work=work or Work(cheap=nbytes // 8), read=half, written=half, kernels=1)


def attention(batch: int, queries: int, keys: int, *, causal: bool = False) -> Row:
    pairs = queries * (queries + 1) // 2 if causal else queries * keys
    return Row(
        "attend", "fused", 4 * 768 * batch * queries * keys, 4 * 768 * batch * pairs,
        read=Traffic(activations=4 * 768 * batch * (queries + 2 * keys)),
        written=Traffic(activations=4 * 768 * batch * queries), kernels=1,
    )  # fmt: skip


@pytest.mark.parametrize("kernel", SMALL, ids=lambda kernel: kernel.key)
def test_a_kernel_has_the_flops_and_bytes_that_the_ledger_counts(kernel: Kernel) -> None:
    call, *_ = kernel.build(Draw(torch.float32, "cpu"))
    with torch.no_grad(), Trace() as trace:
        call()
    counts = trace.counts()
    assert counts.kernels == 1
    assert counts.incomplete == ()
    if not kernel.tiny:
        assert counts.matmul_flops_exact == kernel.flops
        # Small operands that broadcast, as the gain of a norm, are left out.
        assert counts.moved_bytes == pytest.approx(kernel.weights + kernel.activations, rel=0.07)


def test_keys_are_distinct() -> None:
    keys = [kernel.key for kernel in kernels(4, 64 * MIB)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("most", "sizes"), [(64 * MIB, (2, 8, 32, 64)), (1040 * MIB, (2, 8, 32, 128, 384, 1040)), (2 * MIB, (2,))]
)
def test_weights_reach_from_the_nearest_cache_to_beyond_the_last(most: int, sizes: tuple[int, ...]) -> None:
    found = [kernel.key for kernel in kernels(4, most) if kernel.group == "footprint"]
    assert found == [f"footprint {size} MiB" for size in sizes]


@pytest.mark.parametrize("rows", [1, 16, 100, 2048, 5000])
def test_a_product_takes_its_flops_and_bytes(rows: int, rates: Rates) -> None:
    row = product(rows, 1024, 512)
    by_hand = row.matmul_flops / 1e5 + (row.read.total + row.written.total) / 1e4
    assert rates.split(row, ALONE).total == pytest.approx(by_hand, rel=0.02)


def test_weights_from_afar_take_longer(rates: Rates) -> None:
    row = product(1, 1024, 1024)
    near, far = (rates.split(row, WorkingSet(weights, 0)).total for weights in (MIB, 64 * MIB))
    assert far - near == pytest.approx(row.read.weights * (0.5 - 0.1) / 1e3, rel=0.02)


def test_a_bias_is_one_more_pass_over_the_result(rates: Rates) -> None:
    plain = product(2048, 1024, 1024)
    biased = replace(plain, op="aten::addmm", work=Work(cheap=2048 * 1024))
    more = rates.split(biased, ALONE).total - rates.split(plain, ALONE).total
    assert more == pytest.approx(plain.written.total / 1e4, rel=0.02)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("batch", "queries", "keys"), [(1, 1, 512), (4, 1, 2048), (8, 256, 256), (1, 4096, 4096)])
def test_attention_takes_its_visible_pairs_and_its_bytes(
    batch: int, queries: int, keys: int, causal: bool, rates: Rates
) -> None:
    row = attention(batch, queries, keys, causal=causal and queries == keys)
    by_hand = (row.matmul_flops_exact or 0) / 1e5 + (row.read.total + row.written.total) / 1e4
    assert rates.split(row, ALONE).total == pytest.approx(by_hand, rel=0.05)


def test_pairs_that_are_not_known_count_as_seen(rates: Rates) -> None:
    known = attention(8, 256, 256)
    assert rates.split(replace(known, matmul_flops_exact=None), ALONE) == rates.split(known, ALONE)


def test_hiding_pairs_is_never_faster_than_having_none_of_them(machine) -> None:
    """A kernel that computes whole tiles, hidden pairs and all."""
    every = kernels(4, 64 * MIB)
    times = {k.key: machine.us(replace(k, flops=2 * k.flops if k.group == "causal" else k.flops)) for k in every}
    found = rates_from(every, times)
    half = attention(8, 256, 256, causal=True)
    as_many = replace(half, matmul_flops=half.matmul_flops_exact)
    assert found.split(half, ALONE).total >= found.split(as_many, ALONE).total


@pytest.mark.parametrize(
    ("op", "kind", "curve"),
    [
        ("aten::gelu", "pointwise", "aten::gelu"),
        ("aten::gelu_backward", "pointwise", "aten::gelu"),
        ("rms_norm", "norm", "rms_norm"),
        ("layer_norm", "norm", "norm"),
        ("aten::_softmax", "softmax", "softmax"),
        ("aten::stack", "copy", "copy"),
        ("aten::index", "indexing", "copy"),
        ("aten::mean", "reduction", "reduction"),
        ("aten::add", "pointwise", "pointwise"),
        ("lab::mix", "custom", "pointwise"),
        ("lab::mix", "unknown", "pointwise"),
    ],
)
def test_a_row_is_timed_by_what_is_most_like_it(op: str, kind: str, curve: str, rates: Rates) -> None:
    marked = replace(rates, operators={**rates.operators, curve: replace(rates.operators[curve], points=((1, 77.0),))})
    assert marked.split(elementwise(op, kind, 2), ALONE).total == pytest.approx(2 * 77.0)


def test_exponentials_are_no_additions(rates: Rates) -> None:
    marked = replace(rates, overheads={**rates.overheads, "transcendental": 99.0})
    assert marked.overhead(elementwise("aten::exp", "pointwise", 8, Work(transcendental=1))) == 99.0
    assert marked.overhead(elementwise("aten::add", "pointwise", 8)) == rates.overheads["pointwise"]


def test_views_take_no_time_of_the_device(rates: Rates) -> None:
    view = Row("aten::view", "view")
    assert (rates.split(view, ALONE), rates.overhead(view), rates.node(view)) == (Split(), 0.0, 0.0)


@pytest.mark.parametrize(("size", "fresh"), [(FRESH_FROM - 8, 0.0), (FRESH_FROM + 8, 0.3), (3 * FRESH_FROM, 0.3)])
def test_large_results_take_new_memory(size: int, fresh: float, rates: Rates) -> None:
    row = elementwise("aten::add", "pointwise", 2 * size)
    by_hand = 2 * size / 1e4 + size * fresh / 1e3
    assert rates.split(row, ALONE).total == pytest.approx(by_hand, rel=0.02)


def test_where_the_device_is_not_the_host_kernels_have_a_place_in_its_queue(machine) -> None:
    every = kernels(2, 64 * MIB)
    times = {kernel.key: machine.us(kernel) for kernel in every}
    found = rates_from(every, times, {kernel.key: 6.0 for kernel in every if kernel.tiny})
    row = elementwise("aten::add", "pointwise", 8)
    assert (found.overhead(row), found.node(row)) == (6.0, machine.overhead_us)
    assert machine.rates().node(row) == 0.0


def test_json_gives_the_same_rates_back(rates: Rates) -> None:
    assert Rates.from_dict(json.loads(json.dumps(rates.to_dict()))) == rates
