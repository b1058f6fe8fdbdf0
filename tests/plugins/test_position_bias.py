"""Positions that add to the scores: ALiBi against BLOOM, T5's buckets against T5, both in any window and step."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import explorer
from explorer_positions.alibi import ALiBi
from explorer_positions.t5_bias import T5Bias

HEADS, S = 3, 300  # beyond the last bucket of T5


# ALiBi


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 64, 71, 112])
def test_slopes_are_blooms(heads):
    """Its bias is m j: m (j - i) up to a number that is the same along a row, which a softmax takes away."""
    theirs = build_alibi_tensor(torch.ones(1, 6), heads, torch.float32).view(heads, 6)
    ours = ALiBi(heads).bias(6, 6, 0)[0]
    torch.testing.assert_close(ours[:, -1] - ours[:, -1, :1], theirs)


def test_slopes_of_a_power_of_2_are_the_papers():
    expected = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256])
    torch.testing.assert_close(ALiBi(8).slopes, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("T", "S"), [(5, 5), (1, 5), (3, 5)])
def test_alibi_equals_its_formula(T, S):
    slopes = ALiBi(HEADS).slopes.double()
    expected = torch.zeros(1, HEADS, T, S, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(T):
            for j in range(S):
                expected[0, h, i, j] = -slopes[h] * abs(S - T + i - j)
    torch.testing.assert_close(ALiBi(HEADS).bias(T, S, S - T), expected.float())


def test_alibi_has_no_parameters_and_nothing_to_save():
    assert not list(ALiBi(HEADS).parameters())
    assert not ALiBi(HEADS).state_dict()


# T5


def t5(causal, buckets, max_distance):
    """Ours and transformers' with the same table."""
    config = T5Config(
        d_model=HEADS,
        num_heads=HEADS,
        d_kv=1,
        is_decoder=causal,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5Bias(HEADS, causal, buckets=buckets, max_distance=max_distance)
    theirs.relative_attention_bias.load_state_dict(ours.table.state_dict())
    return ours, theirs


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 256), (10, 40), (34, 100)])
@pytest.mark.parametrize("T", [S, 1, 7])
def test_t5_bias_is_transformers(causal, buckets, max_distance, T):
    ours, theirs = t5(causal, buckets, max_distance)
    bias = theirs.compute_bias(T, S, past_seen_tokens=S - T)
    torch.testing.assert_close(ours.bias(T, S, S - T), bias, rtol=0, atol=0)


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_t5_buckets_are_those_of_the_definition(causal):
    """The bucket n + floor(log(d / n) / log(128 / n) n) in whole numbers: a logarithm may miss a border by a bit."""
    ours, n = T5Bias(1, causal), 16 if causal else 8
    ours.table.weight.data = torch.arange(32.0)[:, None]
    for place, bucket in zip(range(-200, 201), ours.bias(201, 401, 0)[0, 0, 0].tolist(), strict=True):
        d = max(-place, 0) if causal else abs(place)
        grown = max([k for k in range(n) if d**n * n**k >= 128**k * n**n], default=0)
        assert bucket == (d if d < n else n + grown) + (0 if causal or place <= 0 else 2 * n)


def test_t5_table_gets_the_gradient_of_an_indexed_one():
    ours, _ = t5(True, 32, 128)
    weight = torch.randn(HEADS, 40, 50, generator=torch.Generator().manual_seed(0))
    (ours.bias(40, 50, 10) * weight).sum().backward()
    table = ours.table.weight.detach().clone().requires_grad_()
    places = torch.arange(50)
    bucket = T5Attention._relative_position_bucket(places - places[10:, None], bidirectional=False)
    (table[bucket].permute(2, 0, 1) * weight).sum().backward()
    torch.testing.assert_close(ours.table.weight.grad, table.grad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": False, "buckets": 2}, "buckets 2 must be even and at least 4 where later tokens are seen too"),
        ({"causal": False, "buckets": 7}, "buckets 7 must be even and at least 4 where later tokens are seen too"),
        ({"causal": True, "max_distance": 16}, "max_distance 16 must be above the 16 distances with a bucket each"),
        ({"causal": False, "max_distance": 8}, "max_distance 8 must be above the 8 distances with a bucket each"),
    ],
)
def test_t5_refuses_what_leaves_no_bucket(options, message):
    with pytest.raises(ValueError, match=message):
        T5Bias(HEADS, **options)


# Both


@pytest.mark.parametrize("position", [ALiBi(HEADS), T5Bias(HEADS, True), T5Bias(HEADS, False)])
def test_a_step_and_a_window_are_parts_of_the_whole(position):
    whole = position.bias(S, S, 0)
    torch.testing.assert_close(position.bias(4, S, S - 4), whole[:, :, -4:], rtol=0, atol=0)
    # In a window of 10 the last 4 queries see the last 13 keys, wherever they stand.
    torch.testing.assert_close(position.bias(4, 13, S - 4), whole[:, :, -4:, -13:], rtol=0, atol=0)


@pytest.mark.parametrize("position", ["alibi", "t5_bias"])
@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_a_model_decodes_what_it_says_at_once(position, window):
    fields = {"dim": 16, "heads": 4, "layers": 2, "vocab": 32, "position": position, "window": window}
    model = explorer.build(explorer.load(fields), device="cpu").eval()
    ids = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(0))
    cache = model.make_cache(2, 9)
    said = torch.cat([model(part, cache=cache) for part in ids.split([5, 1, 2, 1], dim=1)], dim=1)
    torch.testing.assert_close(said, model(ids))


def test_one_table_serves_a_stack_and_each_stack_has_its_own():
    fields = {"dim": 16, "heads": 4, "layers": 3, "vocab": 32, "position": {"t5_bias": {"buckets": 8}}}
    model = explorer.build(explorer.load({**fields, "encoder": {}, "decoder": {}}))
    tables = {name: p.shape for name, p in model.named_parameters() if "table" in name and "position" in name}
    assert tables == {f"{stack}.positions.0.table.weight": (8, 4) for stack in ("encoder", "stack")}
    encoder, decoder = (stack.positions[0] for stack in (model.encoder, model.stack))
    assert (encoder.causal, decoder.causal) == (False, True)
