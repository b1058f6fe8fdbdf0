"""Whole models of two or more layers against transformers with copied weights."""

import pytest
import torch

from tests.parity.families import FAMILIES

# Of the largest number there is: what float32 leaves where sums of some dozen terms run in another order, layer after
# layer. Against float64 both sides are that far off; in gradients further, those of a recurrence furthest.
ANSWERS, GRADIENTS = 1e-5, 5e-5
DECODERS = [family for family in FAMILIES if family.task.decodes]
MASKED = [family for family in FAMILIES if family.masked]


def assert_equal(ours, theirs, tolerance=ANSWERS, of="answers"):
    size = theirs.abs().max().clamp_min(1e-3)
    torch.testing.assert_close(
        ours / size, theirs / size, rtol=0, atol=tolerance, msg=lambda difference: f"{of}: {difference}"
    )


def test_prefill(pair):
    theirs, ours = pair.prefill()
    assert_equal(ours, theirs)


@pytest.mark.parametrize("pair", DECODERS, indirect=True, ids=str)
def test_cached_decode(pair):
    theirs, ours = pair.decode()
    assert_equal(ours, theirs)


@pytest.mark.parametrize("pair", MASKED, indirect=True, ids=str)
def test_padding(pair):
    theirs, ours = pair.padded()
    assert_equal(ours, theirs)


def test_gradients_of_all_weights(pair):
    for name, (theirs, ours) in pair.gradients().items():
        assert_equal(ours, theirs, GRADIENTS, of=f"gradient of {name}")
