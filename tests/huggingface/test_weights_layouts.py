"""Layouts of fused weights, row by row; whole models with them are in tests/parity."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from explorer.huggingface.weights.families import BERT
from explorer.huggingface.weights.layouts import (
    beta_decay_apart,
    by_key_head,
    by_kv_head,
    differences_together,
    gate_before_queries,
    halves_swapped,
    keys_values_apart,
    own_row,
    pairs_apart,
    transposed,
)
from explorer.huggingface.weights.rules import Place, each, either, rows, stacked

# Rows by name, in their order and in ours: a letter for what it is, then the head, then the channel.
ROWS = [
    (by_kv_head, {"head_dim": 2, "width": 4, "kv_width": 4}, "q00 q01 k00 k01 v00 v01 q10 q11 k10 k11 v10 v11",
     "q00 q01 q10 q11 k00 k01 k10 k11 v00 v01 v10 v11"),
    (by_kv_head, {"head_dim": 1, "width": 4, "kv_width": 2}, "q0 q1 k0 v0 q2 q3 k1 v1", "q0 q1 q2 q3 k0 k1 v0 v1"),
    (keys_values_apart, {"heads": 2, "nope_dim": 2, "value_dim": 1}, "k00 k01 v0 k10 k11 v1", "k00 k01 k10 k11 v0 v1"),
    (gate_before_queries, {"head_dim": 2, "width": 4}, "q00 q01 g00 g01 q10 q11 g10 g11",
     "g00 g01 g10 g11 q00 q01 q10 q11"),
    (gate_before_queries, {"head_dim": 2, "width": 4}, "q00 q01 q10 q11", "q00 q01 q10 q11"),
    (gate_before_queries, {}, "a b c d", "a b c d"),
    (by_key_head, {"key_heads": (2, 1)}, "q0 k0 v0 v1 z0 z1 q1 k1 v2 v3 z2 z3",
     "q0 q1 k0 k1 v0 v1 v2 v3 z0 z1 z2 z3"),
    (beta_decay_apart, {"key_heads": (2, 1), "value_heads": (4, 1)}, "b0 b1 a0 a1 b2 b3 a2 a3",
     "b0 b1 b2 b3 a0 a1 a2 a3"),
    (halves_swapped, {"head_dim": 4}, "a b c d e f g h", "c d a b g h e f"),
    (differences_together, {"heads": 2}, "x0 x1 y0 y1", "x0 y0 x1 y1"),
]  # fmt: skip


def place(sizes=(), shape=(), index=0, theirs=frozenset()) -> Place:
    owner = nn.Identity()
    vars(owner).update(sizes)
    return Place("", "", torch.Size(shape), owner, theirs, index)


@pytest.mark.parametrize("shape", [(), (3,)], ids=["bias", "weight"])
@pytest.mark.parametrize(("layout", "sizes", "theirs", "ours"), ROWS)
def test_rows(layout, sizes, theirs, ours, shape):
    names = theirs.split()
    values = torch.randn(len(names), *shape, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([values[names.index(name)] for name in ours.split()])
    torch.testing.assert_close(layout(values, place(sizes)), expected, rtol=0, atol=0)


def test_a_size_that_is_not_there():
    with pytest.raises(ValueError, match="needs `head_dim`, which the model's Identity does not have"):
        halves_swapped(torch.ones(4), place())
    with pytest.raises(ValueError, match="needs `key_heads`, which the model's Identity does not have"):
        by_key_head(torch.ones(4), place())


def test_axes():
    weight = torch.arange(12.0).view(3, 4)
    torch.testing.assert_close(transposed(weight, place()), weight.T)
    torch.testing.assert_close(transposed(weight[0], place()), weight[0])
    torch.testing.assert_close(own_row(weight, place(index=2)), weight[2])
    experts = torch.arange(16.0).view(2, 2, 4)  # (experts, dim, gate and up in turn)
    expected = torch.tensor([[[0.0, 4], [2, 6], [1, 5], [3, 7]], [[8, 12], [10, 14], [9, 13], [11, 15]]])
    torch.testing.assert_close(pairs_apart(experts, place()), expected)
    torch.testing.assert_close(pairs_apart(experts[:, 0], place()), expected[..., 0])


@pytest.mark.parametrize(("old", "new"), [("gamma", "weight"), ("beta", "bias")])
def test_old_names_of_bert(old, new):
    assert BERT.renamed(f"embeddings.LayerNorm.{old}") == f"embeddings.LayerNorm.{new}"


A, B = torch.arange(6.0).view(2, 3), torch.ones(2, 3)
THEIRS = {"a": A, "b": B, "e.0.x": A, "e.1.x": B}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (rows("a", "b"), torch.cat([A, B])),
        (rows("b", rows("a", "a")), torch.cat([B, A, A])),
        (stacked("a", "b"), torch.stack([A, B])),
        (each("e.*.x"), torch.stack([A, B])),
        (each("e.*.x", "e.*.x"), torch.stack([torch.cat([A, A]), torch.cat([B, B])])),
        (either("c", "a"), A),
        (either("b", "a"), B),
    ],
)
def test_rules(rule, expected):
    made = rule.at(place(shape=(2,), theirs=THEIRS.keys()))
    assert made.shape(THEIRS) == expected.shape
    ours = torch.full_like(expected, torch.nan)
    made.copy_into(ours, THEIRS, THEIRS)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (either("c", "d"), ["c"]),
        (either(rows("c", "d"), rows("c", "a")), ["c", "a"]),
        (either(rows("c", "a"), rows("b", "d")), ["c", "a"]),
    ],
)
def test_of_what_is_not_there_the_most_is_looked_for(rule, names):
    assert list(rule.at(place(theirs=THEIRS.keys())).names()) == names


def test_parts_that_do_not_fit_together():
    made = rows("a", "b").at(place())
    with pytest.raises(ValueError, match=r"parts do not fit together: \(2, 3\), \(2, 4\)"):
        made.shape({"a": A, "b": torch.ones(2, 4)})
