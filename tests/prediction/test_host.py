"""Costs of the host: given back from passes that were made of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from explorer.cost.ledger.rows import Row, Traffic
from explorer.prediction.host import NEAREST_CACHE, HostCosts, HostFit, Refill, TinyPass, fit_host
from explorer.prediction.rates import Rates
from explorer.prediction.working_set import WorkingSet
from tests.prediction.machine import HOST

ADD, GELU = Row("aten::add", "pointwise", kernels=1, part="a"), Row("aten::gelu", "pointwise", kernels=1, part="a")
NORM = Row("rms_norm", "norm", kernels=1, part="b")
ATTEND = Row("attend", "fused", kernels=1, part="c")
CACHED = Row("attend", "fused", read=Traffic(cache=8), kernels=1, part="d")
VIEW, ALLOCATION, CALL = Row("aten::view", "view"), Row("aten::empty", "allocation"), Row("Linear", "call")
COSTS = HOST.costs


def test_a_pass_is_the_sum_of_what_the_host_does(rates: Rates) -> None:
    rows = [ADD, GELU, NORM, ATTEND, CACHED, VIEW, ALLOCATION, CALL]
    overheads = 5 * 4.0  # every kernel of the machine
    code = 4 * 5.0  # additions and GELU are of one kind in one part
    attention, cached = 2 * 8.0, 3.0
    by_hand = 10 + overheads + 2 * 0.25 + 2.0 + code + attention + cached
    assert HOST.time(rows, rates, 0) == pytest.approx(by_hand)
    assert HOST.time([], rates, 0) == 10


def test_the_same_kernel_again_finds_its_code_warm(rates: Rates) -> None:
    once, again = HOST.time([ADD], rates, 0), HOST.time([ADD, ADD], rates, 0)
    elsewhere = HOST.time([ADD, replace(ADD, part="z")], rates, 0)
    assert (again - once, elsewhere - once) == (pytest.approx(4.0), pytest.approx(9.0))


@pytest.mark.parametrize(
    ("weights", "activations", "added"),
    [
        (0, 0, 0.0),
        (NEAREST_CACHE // 2, 0, 0),
        (NEAREST_CACHE * 3 // 4, 0, 0.5 * 20),
        (NEAREST_CACHE, 0, 20),
        (9 * NEAREST_CACHE, 0, 20),
        (0, NEAREST_CACHE, 20),
    ],
)
def test_large_kernels_push_out_what_the_host_needs(weights: int, activations: int, added: float, rates: Rates) -> None:
    """Activations count once: the next kernel finds the same ones."""
    row = replace(ADD, read=Traffic(weights, activations))
    fit = replace(HOST, refill=Refill(share=1.0, most=20.0))
    rows = [row, replace(row, read=Traffic(0, activations))]
    assert fit.time(rows, rates, WorkingSet.of(rows).moved) == pytest.approx(HOST.time([row, row], rates, 0) + added)


def test_each_large_set_of_weights_pushes_out_a_share_of_the_pass_at_most_all_there_is() -> None:
    refill = Refill(share=0.5, most=100.0)
    large = replace(ADD, read=Traffic(NEAREST_CACHE))
    assert [refill.time(host, [large], NEAREST_CACHE) for host in (40.0, 200.0, 600.0)] == [20.0, 100.0, 100.0]
    assert [refill.time(host, [large, ADD, large], 2 * NEAREST_CACHE) for host in (40.0, 200.0, 600.0)] == [
        20.0,
        100.0,
        200.0,
    ]


def passes(rates: Rates, costs: HostCosts, noise: float = 0.0) -> list[TinyPass]:
    """Mixtures of everything; the overheads of one operator are its own, or nothing would tell them from the rest."""
    draw = random.Random(0)
    rates = replace(rates, overheads={**rates.overheads, "rms_norm": 11.0})
    found = []
    for _ in range(40):
        rows = [row for row in (ADD, GELU, NORM, ATTEND, CACHED, VIEW, CALL) for _ in range(draw.randrange(4))]
        us = costs.time(rows, rates) * (1 + noise * draw.uniform(-1, 1))
        found.append(TinyPass(rows, rates, us))
    return found


def test_costs_are_given_back(rates: Rates) -> None:
    found = fit_host(passes(rates, COSTS))
    assert [*vars(found.costs).values()] == pytest.approx([*vars(COSTS).values()], rel=1e-6)
    assert found.refill == Refill()


def test_noise_makes_no_cost_negative(rates: Rates) -> None:
    noisy = passes(rates, HostCosts(once=10.0, overhead=1.0), noise=0.05)
    found = fit_host(noisy)
    assert min(vars(found.costs).values()) >= 0
    for one in noisy:
        assert found.time(one.rows, one.rates, 0) == pytest.approx(one.us, rel=0.1)


def test_passes_behind_large_kernels_tell_what_is_fetched_again(rates: Rates) -> None:
    timed = passes(rates, COSTS)
    short, long = min(timed, key=lambda one: one.us), max(timed, key=lambda one: one.us)
    both = [replace(short, refilled=1.8 * short.us), replace(long, refilled=long.us + 50), replace(long, refilled=1.0)]
    found = fit_host([*timed, *both]).refill
    assert (found.share, found.most) == (pytest.approx(0.8), pytest.approx(max(50.0, 0.8 * short.us)))


def test_json_gives_the_same_costs_back() -> None:
    fit = HostFit(COSTS, Refill(0.5, 100.0))
    assert HostFit.from_dict(json.loads(json.dumps(fit.to_dict()))) == fit
