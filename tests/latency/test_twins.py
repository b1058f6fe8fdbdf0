"""Which blocks are declared equal, and how the weights of such a pair are shared."""

import pytest
import torch
from torch import nn

from explorer import build, load
from explorer.errors import MeasureError
from explorer.latency.twins import Twin, declared_equal, equal_moves, moving_bytes, share_weights
from explorer_attentions.mha_naive import NaiveMultiHeadAttention

BASE = {"dim": 16, "heads": 2, "attention": "mha"}
NAIVE = {**BASE, "attention": "mha_naive"}
BIASED = {"attention": {"mha": {"bias": "out"}}}


def equal(one, other, labels=("block", "block")):
    return declared_equal(load(one).plan(), labels[0], load(other).plan(), labels[1])


PAIRS = {  # one, other, whether they are declared equal
    "the pair": (NAIVE, BASE, True),
    "the same block": (BASE, BASE, False),
    "two naive ones": (NAIVE, NAIVE, False),
    "no pair": (NAIVE, {**BASE, "attention": {"gqa": {"kv_heads": 2}}}, False),
    "something else differs too": (NAIVE, {**BASE, "norm": "layernorm"}, False),
    "the window differs too": (NAIVE, {**BASE, "window": 3}, False),
    "the residual differs too": (NAIVE, {**BASE, "residual": "mhc"}, False),
    "an option of the one alone": (NAIVE, {**BASE, "attention": {"mha": {"softcap": 5.0}}}, False),
    "an option at its default": (NAIVE, {**BASE, "attention": {"mha": {"softcap": None}}}, True),
    "the same option": ({**BASE, "attention": {"mha_naive": {"bias": "out"}}}, {**BASE, **BIASED}, True),
    "one option": (NAIVE, {**BASE, **BIASED}, False),
    "the block's option": ({**NAIVE, "bias": True}, {**BASE, "attention": {"mha": {"bias": True}}, "bias": True}, True),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "expected"), PAIRS.values(), ids=PAIRS)
def test_what_is_declared_equal(one, other, expected):
    assert equal(one, other) is expected
    assert equal(other, one) is expected


def test_blocks_are_found_by_their_labels():
    two = {**BASE, "layers": ["block", "slow"], "blocks": {"slow": {"attention": "mha_naive"}}}
    assert equal(two, two, ("slow", "block"))
    assert not equal(two, two, ("slow", "slow"))
    encoder = {**BASE, "encoder": {"attention": "mha_naive", "causal": True}}
    assert equal(encoder, {**BASE, "encoder": {"causal": True}}, ("encoder.block", "encoder.block"))


def test_a_twin_is_one_as_class_and_as_module():
    assert isinstance(NaiveMultiHeadAttention, Twin)
    assert not isinstance(nn.Linear, Twin)


def blocks(one, other):
    return [
        build({**fields, "init": {"normal": {"std": 0.5}}}, "block", device="cpu").eval() for fields in (one, other)
    ]


@pytest.mark.parametrize("order", [(NAIVE, BASE), (BASE, NAIVE)])
@pytest.mark.parametrize("bias", [False, True, "qkv", "out"])
@torch.no_grad()
def test_a_pair_gives_the_same_with_shared_weights(order, bias):
    biased = [{**fields, "attention": {fields["attention"]: {"bias": bias}}} for fields in order]
    one, other = blocks(*({**fields, "seed": seed} for seed, fields in enumerate(biased)))
    for vector in (p for module in (one, other) for p in module.parameters() if p.ndim == 1):
        vector.normal_()
    x = torch.randn(2, 5, 16)
    assert (one(x) - other(x)).abs().max() > 0.1
    share_weights(one, other)
    torch.testing.assert_close(one(x), other(x))


def test_moves_take_no_more_than_the_declared_pairs_in_float64(monkeypatch):
    """The rest, often most of a block, has the same moves in both."""
    widened, double = [], nn.Module.double
    monkeypatch.setattr(nn.Module, "double", lambda module: widened.append(type(module).__name__) or double(module))
    one, other = blocks(NAIVE, BASE)
    share_weights(one, other)
    moves = [move for each in equal_moves(one, other) for move in each]
    assert sorted(widened) == ["GroupedQueryAttention", "NaiveMultiHeadAttention"]
    kept = {id(move): move.nbytes for move in moves}
    assert len(kept) < len(moves)
    pair = 2 * 4 * 16 * 16  # weights
    assert moving_bytes(one, other) == (sum(kept.values()), sum(kept.values()) + 16 * pair)


def test_what_differs_without_a_word_is_refused():
    one, other = blocks(BASE, {**BASE, "activation": "relu"})
    with pytest.raises(MeasureError) as caught:
        share_weights(one, other)
    assert str(caught.value) == (
        "not compared: stack.layers.0.feedforward.branch.up: Linear and Linear hold other weights, "
        "and neither says that it is the other"
    )
