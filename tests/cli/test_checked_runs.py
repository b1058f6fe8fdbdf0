"""`explorer run --audit | --crosscheck | --breakdown`: what is shown, and exit 1 where a number does not stand."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from explorer.cost import audit as auditing
from explorer.cost.crosscheck import check

Explorer = Callable[..., Result]


def test_an_audit_is_told_in_the_notes(explorer: Explorer, study: Path) -> None:
    assert "audit: 4 rows traced as a whole; equal: parameters, bytes of weights" in explorer("run", study).stdout
    assert "- audit: 2 rows traced" in explorer("run", study, "--audit", 2, "--format", "md").stdout
    assert "audit: no row was traced as a whole (--audit 0)" in explorer("run", study, "--audit", 0).stdout


def test_a_sum_that_is_no_whole_is_exit_1(explorer: Explorer, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a kernel were launched in a whole pass that no part knows."""
    real = auditing.run_whole

    def with_one_more(*given: Any) -> Any:
        found = real(*given)
        wrong = {
            part: replace(counts, kernels=counts.kernels + 1)
            for part, counts in found.parts.items()
            if part.endswith("attention.branch")
        }
        return replace(found, parts={**found.parts, **wrong})

    monkeypatch.setattr(auditing, "run_whole", with_one_more)
    result = explorer("run", toy, "--audit", 1)
    assert result.exit_code == 1
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("audit: "))
    assert "2 numbers in 1 of 1 audited row: numbers are sums over parts" in line
    assert "Do not use it" in line
    shown = " ".join(result.stdout.split())
    assert "audit failed: 2 numbers in 1 of 1" in shown
    assert shown.count("kernels 14 as a sum of parts, 15 in a pass of the whole; 1 more of this part") == 1
    found = json.loads(explorer("run", toy, "--format", "json").stdout)["audit"]["mismatches"]
    assert [(one["part"], one["number"], one["whole"] - one["summed"]) for one in found] == [
        (f"block.{layer}.attention.branch", "kernels", 1) for layer in range(2)
    ]


def test_a_cross_check_stands_in_json_and_behind_the_tables(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", toy, "--crosscheck", "--axis", "norm=rmsnorm,layernorm")
    assert result.exit_code == 0, result.stdout
    head = result.stdout.index("cross-check · layernorm · block · prefill")
    assert head > result.stdout.index("matmul FLOPs:")
    assert "fused attention not counted" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    document = json.loads(explorer("run", toy, "--crosscheck", "--format", "json").stdout)
    (entry,) = document["combinations"][0]["crosscheck"]
    (block, _) = document["combinations"][0]["costs"]
    ours = {tool["quantity"]: tool["ours"] for tool in entry["tools"]}
    assert ours["matmul_flops"] == block["matmul_flops"]
    assert ours["params"] == document["combinations"][0]["params"]["block"]
    assert "crosscheck" not in json.loads(explorer("run", toy, "--format", "json").stdout)["combinations"][0]


def test_what_nobody_explains_is_exit_1(explorer: Explorer, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = check.closed_form.tools
    off = [2]

    def wrong(*given: Any) -> Any:
        return [replace(tool, printed=tool.printed + off[0]) for tool in real(*given)]

    monkeypatch.setattr(check.closed_form, "tools", wrong)
    result = explorer("run", toy, "--crosscheck")
    assert result.exit_code == 1
    assert "cross-check: block · prefill" in result.stderr
    assert "closed form prints" in result.stderr
    assert "nobody explains +2" in result.stderr
    off[0] = 0
    assert explorer("run", toy, "--crosscheck").exit_code == 0


def test_a_breakdown_adds_up_to_its_cost(explorer: Explorer, toy: Path) -> None:
    options = ["--set", "vocab=10", "--workload", "tokens=8", "--workload", "phase=train,tokens=8"]
    document = json.loads(explorer("run", toy, *options, "--format", "json").stdout)
    for cost in document["combinations"][0]["costs"]:
        parts = cost["breakdown"].values()
        for key in ("matmul_flops", "matmul_flops_exact", "elementwise_ops", "moved_bytes", "fused_bytes", "kernels"):
            assert sum(part[key] for part in parts) == cost[key]
        for part in parts:
            kinds = ("cheap_ops", "transcendental_ops", "reduction_ops")
            assert sum(part[key] for key in kinds) == part["elementwise_ops"]
            assert sum(part[f"moved_{of}"] for of in ("weights", "activations", "cache")) == part["moved_bytes"]
    assert list(cost["breakdown"]) == ["embedding", "norm", "attention", "feedforward", "residual", "head", "loss"]


def test_a_breakdown_is_shown_where_it_is_asked_for(explorer: Explorer, toy: Path) -> None:
    text = explorer("run", toy, "--breakdown").stdout
    assert "operations by part · toy · one layer, block · prefill" in text
    assert "bytes and kernels by part · toy · model · prefill" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "by part" not in explorer("run", toy).stdout
    rows = explorer("run", toy, "--breakdown", "--format", "md").stdout
    # 2 layers of 8 d d T + 4 T T d and of 6 d h T, with d 16, h 32, T 8.
    assert "| attention | 40,960 | 45.5% | " in rows
    assert "| feedforward | 49,152 | 54.5% | " in rows
    assert "| whole | 90,112 | 100.0% | " in rows


@pytest.mark.parametrize("options", [["--breakdown"], ["--crosscheck"], ["--breakdown", "--crosscheck"]])
def test_csv_says_what_it_does_not_show(explorer: Explorer, toy: Path, options: list[str]) -> None:
    result = explorer("run", toy, "--audit", 0, "--format", "csv", *options)
    assert result.stderr == f"note: --format csv does not show {' and '.join(options)}; table, md and json do\n"
    assert result.exit_code == 0
    assert explorer("run", toy, "--audit", 0, "--format", "json", *options).stderr == ""
