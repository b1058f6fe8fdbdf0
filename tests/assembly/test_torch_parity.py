"""Whole layers against torch's own, with copied weights."""

import pytest
import torch
from torch import nn

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
CONTEXT = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))
FIELDS = {"activation": "relu", "bias": True, "position": "none"}


def copy_attention(theirs, ours):
    ours.qkv.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def copy_feedforward(theirs, ours):
    ours.up.load_state_dict(theirs.linear1.state_dict())
    ours.down.load_state_dict(theirs.linear2.state_dict())


@pytest.fixture
def randomised():
    """torch starts biases at 0 and norms at 1, which would hide a swap."""

    def randomise(module):
        torch.manual_seed(3)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)
        return module

    return randomise


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("placement", "norm"), [("pre", "norm"), ("post", "norm_post")])
def test_encoder_layer(make, randomised, placement, norm, causal):
    theirs = randomised(nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=placement == "pre"))
    ours = make("block", placement=placement, causal=causal, **FIELDS)
    attention, feedforward = ours.block.attention, ours.block.feedforward
    copy_attention(theirs.self_attn, attention.branch)
    copy_feedforward(theirs, feedforward.branch)
    getattr(attention, norm).load_state_dict(theirs.norm1.state_dict())
    getattr(feedforward, norm).load_state_dict(theirs.norm2.state_dict())
    hidden = nn.Transformer.generate_square_subsequent_mask(5) if causal else None
    for mode in (True, False):  # torch's fast path in evaluation, its slow one in training
        theirs.train(mode)
        torch.testing.assert_close(ours(X), theirs(X, src_mask=hidden, is_causal=causal), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("placement", "norm"), [("pre", "norm"), ("post", "norm_post")])
def test_decoder_layer(make, randomised, placement, norm):
    theirs = randomised(nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=placement == "pre"))
    ours = make("block", "decoder.block", encoder={}, placement=placement, **FIELDS)
    parts = ours.block.attention, ours.block.cross_attention, ours.block.feedforward
    copy_attention(theirs.self_attn, parts[0].branch)
    copy_attention(theirs.multihead_attn, parts[1].branch)
    copy_feedforward(theirs, parts[2].branch)
    for part, their_norm in zip(parts, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True):
        getattr(part, norm).load_state_dict(their_norm.state_dict())
    hidden = nn.Transformer.generate_square_subsequent_mask(5)
    expected = theirs(X, CONTEXT, tgt_mask=hidden, tgt_is_causal=True)
    torch.testing.assert_close(ours(X, CONTEXT), expected, rtol=1e-4, atol=1e-5)
