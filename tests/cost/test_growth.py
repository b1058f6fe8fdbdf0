"""How the cache grows with a token: means over one compression period, with open and with full windows."""

from __future__ import annotations

from typing import Any

import pytest

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost import growth
from explorer.cost.costs import KvBytes
from explorer.cost.counting import count

WINDOW = 128


def v4(csa: dict[str, Any], layers: list[Any], **sizes: Any) -> dict[str, Any]:
    """DeepSeek-V4's attentions, without its feed-forwards, residual and vocabulary."""
    low_rank = {"q_rank": sizes.pop("q_rank"), "out_groups": sizes.pop("out_groups")}
    return {
        **sizes,
        "head_dim": 512,
        "window": WINDOW,
        "position": {"rope": {"dims": 64, "at": "end", "pairing": "interleaved"}},
        "feedforward": "none",
        "blocks": {
            "sliding": {"attention": {"hca": {"ratio": None, **low_rank}}},
            "csa": {"attention": {"csa": {**csa, **low_rank}}},
            "hca": {"attention": {"hca": low_rank}},
        },
        "layers": layers,
    }


FLASH = v4(
    {}, [{"sliding": 2}, {"pattern": ["csa", "hca"], "count": 41}], dim=4096, heads=64, q_rank=1024, out_groups=8
)
PRO = v4(
    {"index_top_k": 1024},
    [{"hca": 2}, {"pattern": ["csa", "hca"], "count": 59}],
    dim=7168, heads=128, q_rank=1536, out_groups=16,
)  # fmt: skip


def kv(fields: dict[str, Any], workload: Workload | None = None) -> dict[str, KvBytes]:
    """Cache bytes by the name of the block, and of the model."""
    workload = workload or Workload("prefill", 1, 8)
    return {cost.name: cost.kv for cost in count(explorer.load(fields).plan(), [workload]).costs}


@pytest.mark.parametrize(("fields", "layers", "full"), [(FLASH, 43, 6880), (PRO, 61, 9848)], ids=["flash", "pro"])
def test_deepseek_v4(fields: dict[str, Any], layers: int, full: int) -> None:
    """The published figures: csa one entry of 512 + 128 for 4 tokens, hca one of 512 for 128, two bytes each."""
    found = kv(fields)
    assert (found["model"].per_token_full, found["csa"].per_token_full, found["hca"].per_token_full) == (full, 320, 8)
    assert found["model"].per_token == full + layers * 2 * 512
    assert (found["csa"].per_token, found["hca"].per_token) == (320 + 1024, 8 + 1024)
    assert all(type(rate) is int for rate in (found["model"].per_token, found["model"].per_token_full))


def test_what_deepseek_v4_holds_at_a_million_tokens() -> None:
    """9.62 GiB of entries at 1,048,576 tokens, the published figure of Pro; windows and open entries come on top."""
    tokens = 1_048_576
    held = kv(PRO, Workload("decode", 1, context=tokens))["model"].cache or 0
    windows = 61 * WINDOW * 1024
    waiting = 2 * (31 * 128 * 2 * 512 + 30 * 2 * 4 * 4 * (512 + 128))
    assert held == 9848 * tokens + windows + waiting
    assert round(9848 * tokens / 2**30, 2) == 9.62


BASE: dict[str, Any] = {"dim": 16, "heads": 4, "feedforward": "none", "vocab": None}
EACH = 4 * 2  # bytes of one head's key


@pytest.mark.parametrize("window", [None, 1, 5, 1000])
def test_an_open_window_grows_as_if_it_never_closed(window: int | None) -> None:
    """Also one that is full before the period is over."""
    found = kv({**BASE, "window": window, "attention": {"hca": {"ratio": 16}}, "layers": 3})["model"]
    assert found.per_token == 3 * (EACH + EACH / 16)
    assert found.per_token_full == 3 * (EACH / 16 + (EACH if window is None else 0))


def test_a_rest_is_kept() -> None:
    found = kv({**BASE, "window": 2, "attention": {"hca": {"ratio": 3}}})["block"]
    assert (found.per_token, found.per_token_full) == (EACH + EACH / 3, EACH / 3)
    # Two layers of ratio 3 and 5: one period is 15 tokens, and the sum is rounded once.
    blocks = {name: {"attention": {"hca": {"ratio": ratio}}} for name, ratio in (("three", 3), ("five", 5))}
    model = kv({**BASE, "window": 2, "blocks": blocks, "layers": ["three", "five"]})["model"]
    assert model.per_token_full == EACH * 8 / 15


def test_compressed_and_plain_layers_in_one_stack() -> None:
    blocks = {"local": {"window": 3}, "sparse": {"attention": {"csa": {"index_dim": 4}}, "window": 3}, "global": {}}
    found = kv({**BASE, "blocks": blocks, "layers": ["local", "sparse", "global"]})
    assert (found["local"].per_token, found["local"].per_token_full) == (2 * 32, 0)
    assert (found["sparse"].per_token, found["sparse"].per_token_full) == (EACH + 4, 4)
    assert (found["global"].per_token, found["global"].per_token_full) == (2 * 32, 2 * 32)
    assert (found["model"].per_token, found["model"].per_token_full) == (64 + EACH + 4 + 64, 4 + 64)


@pytest.mark.parametrize(("table", "full"), [(8, 8), (16, 8), (64, 8 / 16), (200, 8 / 16)])
def test_a_position_table_that_ends_early(table: int, full: float) -> None:
    """Without room for one entry none is ever made; a window as long as the table is never full."""
    fields = {**BASE, "window": 16, "position": {"learned": {"max_tokens": table}}, "attention": {"hca": {"ratio": 16}}}
    found = kv({**fields, "layers": 2}, Workload("prefill", 1, 4))["block"]
    assert (found.per_token, found.per_token_full) == (
        EACH + (EACH / 16 if table >= 16 else 0),
        full + (table == 16) / 2,
    )


def test_a_period_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of a token shows how long the period of an attention is, one of its period how much it writes."""
    steps: list[int] = []
    fill = growth.fill

    def counting(part: Any, inputs: Any, cache: Any, tokens: int, source: int | None) -> None:
        steps.append(tokens)
        fill(part, inputs, cache, tokens, source)

    monkeypatch.setattr(growth, "fill", counting)
    kv(FLASH)
    assert sorted(steps) == [1, 1, 1, 4, 128]  # a window, a ratio of 4, a ratio of 128


def test_a_table_holds_whole_and_broken_rates() -> None:
    fields = {**BASE, "attention": "mha", "layers": 1, "workloads": [{"tokens": 4}], "window": 2}
    explore = {"attention": ["mha", {"hca": {"ratio": 3}}, "csa"]}
    result = explorer.run({**fields, "explore": explore})
    rates = [
        cost["kv_bytes_per_token_full_windows"] for row in result.to_dict()["combinations"] for cost in row["costs"]
    ]
    assert result.frame()["kv_bytes_per_token_full_windows"].to_list() == rates
    assert EACH / 3 in rates
    assert 0 in rates
