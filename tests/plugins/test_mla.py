"""Multi-head latent attention: its formula in float64, its two forms, its costs, and DeepSeek-V3's of transformers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV3Config, DynamicCache
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

import explorer
from explorer import Cache, Visible
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.ledger.trace import Trace
from explorer_attentions.mla import MultiheadLatentAttention
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import (
    DIM,
    HEAD_DIM,
    HEADS,
    B,
    Block,
    Recorder,
    S,
    T,
    dense,
    drawn,
    hidden,
    in_pieces,
    parameters,
    scattered,
    turn,
)

RANK, ROPE, NOPE, VALUE = 6, 4, 5, 3
WIDTHS: dict[str, Any] = {"kv_rank": RANK, "rope_dim": ROPE, "nope_dim": NOPE, "value_dim": VALUE, "norm": RMSNorm}
SETTINGS: dict[str, dict[str, Any]] = {
    "q straight": {},
    "q latent": {"q_rank": 7},
    "gate": {"gate": True, "q_rank": 7},
    "scale": {"scale": 0.2},
    "head_dim wide": {"nope_dim": None, "value_dim": None},
}
each_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def mla(setting: dict[str, Any], **block: Any) -> Any:
    """In float64."""
    return scattered(Block(**block).build(MultiheadLatentAttention, **{**WIDTHS, **setting})).double()


def rms(x: Tensor, norm: RMSNorm) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def per_head(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def written_out(attention, x, context=None, *, position=None, window=None, **setting):
    """Keys and values made for each head; `position` turns the rope parts of queries and keys."""
    nope, value = setting.get("nope_dim", NOPE) or HEAD_DIM, setting.get("value_dim", VALUE) or HEAD_DIM
    q_rank, gate = setting.get("q_rank"), setting.get("gate", False)
    cuts = [HEADS * value * gate, q_rank or HEADS * (nope + ROPE), RANK, ROPE]
    source = x if context is None else context
    maps = zip((x, x, source, source), attention.down.weight.split(cuts), attention.down.bias.split(cuts), strict=True)
    g, q, c, k_rope = (t @ weight.T + bias for t, weight, bias in maps)
    q = rms(q, attention.q_norm) @ attention.q_up.weight.T if q_rank else q
    w_k, w_v = attention.kv_up.weight.split([HEADS * nope, HEADS * value])
    c = rms(c, attention.kv_norm)
    q_nope, q_rope = per_head(q).split([nope, ROPE], dim=-1)
    k_rope = k_rope[:, None]
    if position is not None:
        q_rope, k_rope = (position.rotate(t, torch.arange(t.shape[2])) for t in (q_rope, k_rope))
    k = torch.cat([per_head(c @ w_k.T), k_rope.repeat(1, HEADS, 1, 1)], dim=-1)
    scale = setting.get("scale") or (nope + ROPE) ** -0.5
    visible = Visible(causal=context is None, window=window)
    y = dense(torch.cat([q_nope, q_rope], dim=-1), k, per_head(c @ w_v.T), visible, scale=scale)
    y = y.transpose(1, 2).flatten(2)
    return (y / (1 + (-g).exp()) if gate else y) @ attention.out.weight.T + attention.out.bias


@each_setting
@pytest.mark.parametrize("absorbs", [False, True], ids=["expanded", "absorbed"])
@torch.no_grad()
def test_both_forms_are_the_formula(setting, absorbs, monkeypatch):
    monkeypatch.setattr(MultiheadLatentAttention, "_absorbs", lambda self, T, S: absorbs)
    x, context = drawn(B, T, DIM).double(), drawn(B, S, DIM).double()
    exact = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    exact(mla(setting)(x), written_out(mla(setting), x, **setting))
    for window in (None, 3):
        ours = mla(setting, position=turn, window=window)
        expected = written_out(ours, x, position=turn(ROPE), window=window, **setting)
        exact(ours(x), expected)
        exact(in_pieces(ours, x, [2, 3]), expected)
    exact(ours(x, context=context), written_out(ours, x, context, **setting))


@each_setting
def test_the_absorbed_form_has_the_gradients_of_the_expanded_one(setting, monkeypatch):
    gradients = []
    for absorbs in (False, True):
        monkeypatch.setattr(MultiheadLatentAttention, "_absorbs", lambda self, T, S, absorbs=absorbs: absorbs)
        ours = mla(setting, position=turn)
        (ours(drawn(B, T, DIM).double()) * drawn(B, T, DIM, seed=2)).sum().backward()
        gradients.append([p.grad for p in ours.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


@torch.no_grad()
def test_forms_agree_in_narrow_dtypes(monkeypatch):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        outputs = []
        for absorbs in (False, True):
            monkeypatch.setattr(MultiheadLatentAttention, "_absorbs", lambda self, T, S, absorbs=absorbs: absorbs)
            outputs.append(mla({}, position=RoPE).to(dtype)(drawn(B, T, DIM).to(dtype)))
        torch.testing.assert_close(*outputs, rtol=tolerance, atol=tolerance)


# What is cached


@torch.no_grad()
def test_the_cache_holds_normed_latents_and_rotated_keys_that_are_not_normed():
    cache = Recorder(offset=3)
    ours, x = mla({"q_rank": 7}, position=turn, window=4), drawn(B, T, DIM).double()
    ours(x, cache=cache)
    c, k_rope = ours.down(x).split([7, RANK + ROPE], dim=-1)[1].split([RANK, ROPE], dim=-1)
    k_rope = turn(ROPE).rotate(k_rope[:, None], torch.arange(3, 3 + T))
    expected = torch.cat([rms(c, ours.kv_norm)[:, None], k_rope], dim=-1)
    assert cache.given.keys() == {"window", "latent"}
    torch.testing.assert_close(cache.given["latent"], expected)


def costs(workload: Workload, **fields: Any) -> Any:
    plan = explorer.load({"norm": "none", "feedforward": "none", "position": "none", **fields}).plan()
    return count(plan, [workload]).costs[0]


def test_a_token_takes_its_latent_and_its_rope_key_in_the_cache():
    """DeepSeek-V3 has 61 such layers: 70,272 bytes a token in bfloat16."""
    sizes = {"dim": 64, "heads": 2, "head_dim": 32, "attention": {"mla": {"kv_rank": 512, "rope_dim": 64}}}
    cost = costs(Workload("decode", 1, context=8, dtype="bfloat16"), **sizes)
    assert 61 * cost.kv.per_token == 61 * 2 * (512 + 64) == 70_272


# Parameters and products


@pytest.mark.parametrize("q_rank", [1536, None])
@pytest.mark.parametrize("gate", [False, True])
def test_parameters_at_the_size_of_deepseek_v3(q_rank, gate):
    d, h, r, rope, nope, value = 7168, 128, 512, 64, 128, 128
    with torch.device("meta"):
        ours = Block(dim=d, heads=h, head_dim=128, bias=False).build(
            MultiheadLatentAttention, q_rank=q_rank, kv_rank=r, rope_dim=rope, gate=gate, norm=RMSNorm
        )
    query = d * q_rank + q_rank + q_rank * h * (nope + rope) if q_rank else d * h * (nope + rope)
    expected = query + d * (r + rope) + r + r * h * (nope + value) + h * value * d
    assert parameters(ours) == expected + gate * d * h * value
    if q_rank and not gate:
        assert expected == 187_107_328


def test_bias_is_on_maps_from_x_and_on_the_output():
    for setting, q_width in (({"q_rank": 7}, 7), ({}, HEADS * (NOPE + ROPE))):
        plain = parameters(mla(setting, bias=False))
        for bias, added in (("qkv", q_width + RANK + ROPE), ("out", DIM), (True, q_width + RANK + ROPE + DIM)):
            assert parameters(mla(setting, bias=bias)) - plain == added


B6 = Block(dim=256, heads=4, head_dim=32, causal=False, bias=False)
B6_WIDTHS: dict[str, Any] = {"q_rank": 96, "kv_rank": 64, "nope_dim": 32, "rope_dim": 16, "value_dim": 32}


def products(module: Any, x: Tensor, **given: Any) -> tuple[int, int]:
    """FLOPs of the attention core, and of all else."""
    with Trace() as trace, torch.no_grad():
        module(x, **given)
    core = sum(row.matmul_flops for row in trace.rows if row.op == "attend")
    return core, sum(row.matmul_flops for row in trace.rows) - core


def test_b6_keys_and_values_have_their_own_widths():
    with torch.device("meta"):
        ours = B6.build(MultiheadLatentAttention, **B6_WIDTHS, norm=RMSNorm)
        assert products(ours, torch.empty(1, 16, 256)) == (163_840, 3_604_480)
    attention = {"mla": B6_WIDTHS}
    cost = costs(Workload("prefill", 1, 16, dtype="float32"), dim=256, heads=4, head_dim=32, attention=attention)
    assert cost.matmul_flops == 163_840 + 3_604_480


def at(T: int, S: int) -> tuple[int, int]:
    """Products of T new tokens that see S, those before them in a cache."""
    with torch.device("meta"):
        ours = Block(bias=False).build(MultiheadLatentAttention, **WIDTHS, q_rank=7)
        cache = Cache(1, batch=1, capacity=S)
        if S > T:
            ours(torch.empty(1, S - T, DIM), cache=cache.views[0])
        cache.advance(S - T)
        return products(ours, torch.empty(1, T, DIM), cache=cache.views[0])


def test_a_decode_step_counts_the_absorbed_form():
    d, h, q_rank, S = DIM, HEADS, 7, 9
    core = 2 * S * h * (2 * RANK + ROPE)
    rest = d * q_rank + q_rank * h * (NOPE + ROPE) + d * (RANK + ROPE) + h * NOPE * RANK + h * VALUE * RANK
    assert at(1, S) == (core, 2 * (rest + h * VALUE * d))


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 2), (1, 9), (4, 4), (4, 5), (6, 9), (8, 9), (40, 41), (40, 100)])
def test_a_call_takes_the_form_with_fewer_products(T, S, monkeypatch):
    chosen = at(T, S)
    forms = {}
    for absorbs in (False, True):
        monkeypatch.setattr(MultiheadLatentAttention, "_absorbs", lambda self, T, S, absorbs=absorbs: absorbs)
        forms[absorbs] = at(T, S)
    assert chosen == (min(forms.values(), key=sum) if S > T else forms[False])


# Public case F7


@pytest.mark.parametrize(("nope", "rope", "expected"), [(128, 64, 0.07216878), (32, 16, 0.14433757)])
def test_f7_the_scale_is_of_the_width_of_a_whole_query(nope, rope, expected):
    with torch.device("meta"):
        ours = Block(dim=5120, heads=128, head_dim=40, bias=False).build(
            MultiheadLatentAttention, kv_rank=512, rope_dim=rope, nope_dim=nope, norm=RMSNorm
        )
    assert ours.scale == pytest.approx(expected, abs=5e-9)


# transformers with copied weights


def their(q_rank: int | None, **settings: Any) -> tuple[Any, DeepseekV3Config]:
    torch.manual_seed(0)
    config = DeepseekV3Config(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, q_lora_rank=q_rank, kv_lora_rank=RANK,
        qk_rope_head_dim=ROPE, qk_nope_head_dim=NOPE, v_head_dim=VALUE, head_dim=ROPE, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, num_hidden_layers=1, **settings,
    )  # fmt: skip
    return scattered(DeepseekV3Attention(config, 0)), config


def copied(theirs: Any, q_rank: int | None) -> dict[str, Tensor]:
    """Their kv_b_proj has the rows of keys and values side by side for each head."""
    first = theirs.q_a_proj if q_rank else theirs.q_proj
    keys_values = theirs.kv_b_proj.weight.unflatten(0, (HEADS, NOPE + VALUE)).split([NOPE, VALUE], dim=1)
    weights = {
        "down.weight": torch.cat([first.weight, theirs.kv_a_proj_with_mqa.weight]),
        "kv_norm.weight": theirs.kv_a_layernorm.weight,
        "kv_up.weight": torch.cat([part.flatten(0, 1) for part in keys_values]),
        "out.weight": theirs.o_proj.weight,
    }
    if q_rank:
        weights |= {"q_norm.weight": theirs.q_a_layernorm.weight, "q_up.weight": theirs.q_b_proj.weight}
    if theirs.o_proj.bias is not None:
        weights["down.bias"] = torch.cat([first.bias, theirs.kv_a_proj_with_mqa.bias])
        weights["out.bias"] = theirs.o_proj.bias
    return weights


@pytest.mark.parametrize(
    ("q_rank", "bias", "interleaved"),
    [(7, False, True), (None, False, True), (7, True, True), (7, False, False)],
    ids=["q latent", "q straight", "bias", "half-split"],
)
@torch.no_grad()
def test_deepseek_v3(q_rank, bias, interleaved):
    """Prefill, then one step through either cache."""
    theirs, config = their(q_rank, attention_bias=bias, rope_interleave=interleaved)
    position = partial(RoPE, pairing="interleaved" if interleaved else "half")
    ours = Block(position=position, bias=bias).build(MultiheadLatentAttention, **WIDTHS, q_rank=q_rank)
    ours.load_state_dict(copied(theirs, q_rank))
    x, angles, past = drawn(B, T, DIM), DeepseekV3RotaryEmbedding(config), DynamicCache(config=config)
    first = theirs(x[:, :-1], angles(x, torch.arange(T - 1)[None]), hidden(T - 1, T - 1), cache=past)[0]
    step = theirs(x[:, -1:], angles(x, torch.arange(T - 1, T)[None]), hidden(1, T), cache=past)[0]
    expected = torch.cat([first, step], dim=1)
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(in_pieces(ours, x, [T - 1]), expected)


@torch.no_grad()
def test_without_a_position_the_rope_channels_stay():
    """Kimi: the last token says the same whatever the order of those before it, with as many parameters."""
    x = drawn(B, T, DIM).double()
    mixed = x[:, [2, 0, 3, 1, 4]]
    ours, turned = mla({}), mla({}, position=turn)
    assert parameters(ours) == parameters(turned)
    torch.testing.assert_close(ours(mixed)[:, -1], ours(x)[:, -1])
    assert not torch.allclose(turned(mixed)[:, -1], turned(x)[:, -1], atol=1e-3)
