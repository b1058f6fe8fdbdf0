"""The table of names leaves nothing out, and the transformations are what they say."""

import pytest
import torch

from tests.parity.weights import layers, regrouped, rows, translated, transposed

A, B = torch.arange(6.0).reshape(2, 3), torch.ones(1, 3)


def test_a_name_is_a_module_or_a_tensor():
    theirs = {"x.weight": A, "x.bias": A[:, 0], "x.sinks": B}
    assert translated({"ours": "x", "ours.sinks": "x.sinks"}, theirs).keys() == {
        "ours.weight",
        "ours.bias",
        "ours.sinks",
    }


def test_layers_have_a_table_each():
    theirs = {"h.0.q.weight": A, "h.0.k.weight": B, "h.1.all.weight": A}
    found = translated(layers("stack", "h", [{"qk": rows("q", "k")}, {"qk": "all"}]), theirs)
    torch.testing.assert_close(found, {"stack.0.qk.weight": torch.cat([A, B]), "stack.1.qk.weight": A})


def test_transposed_leaves_biases_alone():
    found = translated({"ours": transposed("x")}, {"x.weight": A, "x.bias": A[0]})
    torch.testing.assert_close(found, {"ours.weight": A.T, "ours.bias": A[0]})


def test_regrouped_by_another_axis():
    fused = torch.arange(12.0)  # two heads of (q, k, v) of width 2
    found = translated({"ours": regrouped("x", 2, 3, order=(1, 0))}, {"x.bias": fused})
    expected = torch.tensor([0.0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11])
    torch.testing.assert_close(found, {"ours.bias": expected})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"ours": "x"}, "no rule uses y.weight"),
        ({"ours": "x", "other": "y", "third": "z"}, "third: theirs has no z"),
        ({"ours": "x", "other": rows("y", "z")}, "z.weight"),
    ],
)
def test_nothing_is_left_over(names, message):
    with pytest.raises(LookupError, match=message):
        translated(names, {"x.weight": A, "y.weight": B})
