"""Rules of plugins for their own operators: how they come in, what they count, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from explorer.cost.ledger.rows import Counts, OpCost, Traffic, Work
from explorer.cost.ledger.trace import Trace
from explorer.errors import PluginError
from explorer.registry.registry import CostRule, Origin

HOOK = "from explorer import OpCost, hookimpl\n@hookimpl\ndef register_cost_rules():\n    return "
LAB = Origin("lab", "lab-dist", "1.0")


@torch.library.custom_op("explorer_test_rules::mix", mutates_args=())
def mix(x: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    return scale * (x @ table)


@mix.register_fake
def _(x: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    return x.new_empty(x.shape[0], table.shape[1])


@torch.library.custom_op("explorer_test_rules::push", mutates_args=("into",))
def push(into: Tensor, x: Tensor) -> None:
    into[: len(x)] = x


@push.register_fake
def _(into: Tensor, x: Tensor) -> None:
    return None


def meta(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


def ruled(op: str, rule: Callable[..., Any]) -> dict[str, CostRule]:
    return {op: CostRule(op, rule, LAB)}


def of_mix(given: Any, out: Tensor) -> OpCost:
    assert set(given) == {"x", "table"}  # what is left at its default is not there
    return OpCost(matmul_flops=2 * out.numel() * given["x"].shape[1], transcendental_ops=out.numel())


def test_a_rule_counts_what_it_says() -> None:
    x, table = meta(3, 4), meta(4, 5)
    with Trace(weights=[table], rules=ruled("explorer_test_rules::mix", of_mix)) as trace:
        mix(x, table)
    (row,) = trace.rows
    assert (row.op, row.kind, row.kernels) == ("explorer_test_rules::mix", "custom", 1)
    assert (row.matmul_flops, row.matmul_flops_exact, row.work) == (120, 120, Work(transcendental=15))
    assert (row.read, row.written) == (Traffic(weights=80, activations=48), Traffic(activations=60))
    assert trace.counts().incomplete == ()


def test_bytes_are_those_of_the_arguments_where_the_rule_says_nothing_else() -> None:
    said = OpCost(read_bytes={"table": 8})
    with Trace(rules=ruled("explorer_test_rules::mix", lambda given, out: said)) as trace:
        mix(meta(3, 4), meta(4, 5))
    assert trace.rows[-1].read.total == 48 + 8


@pytest.mark.parametrize(("said", "written"), [(OpCost(), 400), (OpCost(written_bytes={"into": 40}), 40)])
def test_what_changes_in_place_is_written(said: OpCost, written: int) -> None:
    with Trace(rules=ruled("explorer_test_rules::push", lambda given, out: said)) as trace:
        push(meta(10, 10), meta(1, 10))
    assert (trace.rows[-1].read.total, trace.rows[-1].written.total) == (440, written)


def test_an_exact_count_that_is_not_known_has_its_reason() -> None:
    rule = ruled("explorer_test_rules::mix", lambda given, out: OpCost(matmul_flops=7, reason="who knows"))
    with Trace(rules=rule) as trace:
        mix(meta(3, 4), meta(4, 5))
    assert trace.counts().matmul_flops == 7
    assert (trace.counts().matmul_flops_exact, trace.counts().exact_reason) == (None, "who knows")


FAULTS = {
    "returns nothing": (lambda given, out: None, "must return an OpCost, not NoneType"),
    "raises": (lambda given, out: given["y"], r"failed: KeyError: 'y'"),
    "bytes of no tensor": (
        lambda given, out: OpCost(read_bytes={"y": 1}),
        "says bytes of 'y', which is no tensor among",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rule_at_fault_is_told_with_its_package(fault: str) -> None:
    rule, text = FAULTS[fault]
    with (
        Trace(rules=ruled("explorer_test_rules::mix", rule)),
        pytest.raises(PluginError, match=rf"^cost rule for explorer_test_rules::mix of lab-dist 1.0 \(lab\) {text}"),
    ):
        mix(meta(3, 4), meta(4, 5))


@pytest.mark.parametrize("op", ["aten::mm", "aten::relu", "aten::t"])
def test_an_operator_that_the_explorer_counts_is_refused(op: str) -> None:
    with (
        Trace(rules=ruled(op, lambda given, out: OpCost())),
        pytest.raises(PluginError, match=rf"for {op} of lab-dist 1.0 \(lab\): the explorer itself counts {op}"),
    ):
        torch.relu(meta(2, 3) @ meta(3, 2)).t()


def test_an_operator_of_torch_that_nobody_counts_may_have_a_rule() -> None:
    rule = ruled("aten::linalg_inv_ex", lambda given, out: OpCost(matmul_flops=2 * given["A"].shape[-1] ** 3))
    with Trace(rules=rule) as trace:
        torch.linalg.inv(meta(3, 3))
    assert trace.counts().matmul_flops == 54
    assert trace.counts().incomplete == ()


# From packages -------------------------------------------------------------------------------------------------------


def test_rules_come_with_their_package(site, load):
    site.plugin("lab", HOOK + "{'explorer_test_rules::mix': lambda given, out: OpCost(matmul_flops=5)}")
    rules = load().cost_rules
    rule = rules["explorer_test_rules::mix"]
    assert (rule.package, str(rule.origin), rule.rivals) == ("lab", "lab-dist 1.0", ())
    with Trace(rules=rules) as trace:
        mix(meta(3, 4), meta(4, 5))
    assert trace.counts().matmul_flops == 5


def test_an_operator_of_two_packages_is_refused_where_it_is_met(site, load):
    for name in ("lab_b", "lab_a"):
        site.plugin(name, HOOK + "{'explorer_test_rules::mix': lambda given, out: OpCost()}")
    registry = load()
    assert registry.broken == ()
    with Trace(rules=registry.cost_rules) as trace:
        meta(2, 3) @ meta(3, 2)
        both = r"lab_a-dist 1.0 \(lab_a\) and lab_b-dist 1.0 \(lab_b\)"
        with pytest.raises(PluginError, match=f"two packages have a cost rule for explorer_test_rules::mix: {both}"):
            mix(meta(3, 4), meta(4, 5))
    assert trace.counts().matmul_flops == 24


BROKEN = {  # what the hook returns, part of the reason
    "[]": "hook register_cost_rules must return a mapping of operators to rules, not list",
    "{3: print}": "3 is no operator; write 'namespace::name', without overload",
    "{'mix': print}": "'mix' is no operator",
    "{'lab::mix.default': print}": "'lab::mix.default' is no operator",
    "{'lab::mix': 7}": "the rule for 'lab::mix' cannot be called: int",
    "1 / 0": "hook register_cost_rules failed: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("offered", BROKEN)
def test_a_hook_at_fault_breaks_its_package(offered, site, load):
    site.plugin("bad", HOOK + offered)
    (broken,) = [one for one in load().broken if one.name == "bad"]
    assert BROKEN[offered] in broken.reason


def test_one_package_may_not_say_it_twice(site, load):
    twice = "\n".join(
        f"{name} = hookimpl(specname='register_cost_rules')(lambda: {{'lab::mix': print}})" for name in "ab"
    )
    site.plugin("bad", f"from explorer import hookimpl\n{twice}")
    (broken,) = [one for one in load().broken if one.name == "bad"]
    assert "it offers the cost rule for lab::mix 2 times" in broken.reason


@pytest.mark.parametrize("decays", [1, 6])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_built_in_rule_counts_what_its_operator_is_made_of(load, decays, backwards):
    """`explorer_attentions::carry` stands for a loop; only a compiler makes one operator of it."""
    from explorer_attentions.carry import _loop, _operator

    N, n, C, K, V = 3, 4, 5, 6, 7
    given = meta(N, n, C, K), meta(N, n, C, V), meta(N, n, K, C), meta(N, n, decays, 1), meta(N, K, V)
    more = meta(N, n, K, V) if backwards else None
    with Trace(rules=load().cost_rules) as whole:
        _operator(*given, more, backwards)
    with Trace() as taken_apart:
        _loop(*given, more, backwards)
    one, many = whole.counts(), taken_apart.counts()
    assert one.incomplete == ()
    assert one.matmul_flops == many.matmul_flops == N * n * 4 * C * K * V
    assert one.elementwise_ops == many.elementwise_ops
    assert (one.kernels, one.moved_bytes < many.moved_bytes) == (1, True)


def test_without_its_rule_an_operator_is_listed():
    with Trace() as trace:
        mix(meta(3, 4), meta(4, 5))
    assert trace.counts() == Counts(
        read_activations=48 + 80, written_activations=60, fused_bytes=188, kernels=1,
        incomplete=(("explorer_test_rules::mix", 1),),
    )  # fmt: skip
