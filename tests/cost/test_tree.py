"""The tree of modules: its figures are those of the cost, whatever stands in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import explorer
from explorer.cost.counting import count
from explorer.cost.ledger.rows import Counts
from explorer.cost.tree import Node, tree
from explorer.report.tree import tree_text

SMALL: dict[str, Any] = {"dim": 16, "heads": 4, "layers": 3, "vocab": 12, "feedforward": {"dense": {"hidden": 32}}}
PREFILL = {"tokens": 8, "dtype": "float32"}
MODELS: list[dict[str, Any]] = [
    {},
    {"tie_embeddings": True, "norm": "layernorm", "placement": "post"},
    {"residual": {"mhc": {"streams": 2}}},
    {"residual": "attnres", "attention": {"gqa": {"kv_heads": 2}}},
    {"workloads": [{"phase": "decode", "context": 9}]},
    {"workloads": [{"phase": "train", **PREFILL}]},
    {"blocks": {"wide": {"window": 4}, "full": {}}, "layers": ["wide", "full", "wide"]},
]


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_the_root_is_the_cost_of_the_model(fields: dict[str, Any]) -> None:
    blueprint = explorer.load({**SMALL, "workloads": [PREFILL], **fields})
    plan, workload = blueprint.plan(), blueprint.workloads[0]
    root, settled = tree(plan, workload, {})
    (cost,) = (cost for cost in count(plan, [workload]).costs if cost.scope == "model")
    assert settled == cost.workload
    assert cost.counts is not None
    assert root.counts is not None
    for key in ("matmul_flops", "matmul_flops_exact", "elementwise_ops", "moved_bytes", "kernels"):
        assert getattr(root.counts, key) == getattr(cost.counts, key), key


def test_layers_that_are_alike_are_one_line() -> None:
    blueprint = explorer.load({**SMALL, "workloads": [PREFILL], **MODELS[-1]})
    root, workload = tree(blueprint.plan(), blueprint.workloads[0], {})
    layers = next(node for node in nodes(root) if node.names == ("layers",))
    assert [child.names for child in layers.children] == [("0", "2"), ("1",)]
    sums = (child.counts * len(child.names) for child in layers.children if child.counts is not None)
    assert sum(sums, Counts()) == layers.counts
    text = tree_text("small", root, workload.to_dict(), width=80)
    assert "0, 2: Block × 2" in text
    assert max(map(len, text.splitlines())) <= 80


def test_branches_lead_from_what_holds_to_what_is_held() -> None:
    def node(name: str, *children: Node) -> Node:
        return Node((name,), "M", 1, Counts(), children)

    root = node("", node("a", node("b"), node("c", node("d"))), node("e", node("f")))
    lines = tree_text("t", root, {"phase": "prefill", "batch": 1, **PREFILL}, width=80).splitlines()
    shown = [line.partition("  1 ")[0].rstrip() for line in lines if "M  " in line]
    assert shown == ["M", "├─a: M", "│ ├─b: M", "│ └─c: M", "│   └─d: M", "└─e: M", "  └─f: M"]


def test_a_weight_that_is_read_from_outside_is_explained() -> None:
    """The table of an untied head is a module that nobody calls; a tied one stands in the tree before."""
    said = "0 beside parameters: a module that is not called"
    for tied in (False, True):
        blueprint = explorer.load({**SMALL, "workloads": [PREFILL], "tie_embeddings": tied})
        root, workload = tree(blueprint.plan(), blueprint.workloads[0], {})
        text = tree_text("small", root, workload.to_dict(), width=80)
        assert (said in text) is not tied


def test_a_linear_has_its_closed_form_and_its_parameters() -> None:
    blueprint = explorer.load({**SMALL, "workloads": [PREFILL]})
    root, _ = tree(blueprint.plan(), blueprint.workloads[0], {})
    down = next(node for node in nodes(root) if node.names == ("down",))
    assert down.params == 16 * 32
    assert down.counts is not None
    assert down.counts.matmul_flops == 2 * 8 * 16 * 32
    assert down.counts.moved_bytes == 4 * (8 * 32 + 16 * 32 + 8 * 16)


def test_a_block_alone_has_a_tree_too() -> None:
    blueprint = explorer.load({"dim": 16, "heads": 4, "workloads": [PREFILL]})
    root, _ = tree(blueprint.plan(), blueprint.workloads[0], {})
    assert root.kind == "BlockModule"
    assert root.counts is not None
    assert root.counts.matmul_flops > 0
