"""Kimi Delta Attention against transformers' two modules with the same weights and its formula in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from explorer import Cache, build
from explorer_attentions.kda import KimiDeltaAttention
from explorer_attentions.log_decay import LogDecay

DIM, HEADS, HEAD_DIM, B = 16, 4, 6, 2  # heads * head_dim is not dim
WIDTH = HEADS * HEAD_DIM
K3 = {"decay_floor": -5.0, "out_gate": "full"}
VARIANTS = {"kimi linear": {}, "kimi k3": K3, "floor": {"decay_floor": -5.0}, "rank": {"decay_rank": 3, "conv": 2}}
LENGTHS = [3, 70]  # within a chunk, and over its border
each_variant = pytest.mark.parametrize("name", VARIANTS)
each_length = pytest.mark.parametrize("T", LENGTHS)


def built(**given) -> KimiDeltaAttention:
    torch.manual_seed(0)
    layer = KimiDeltaAttention(DIM, HEADS, HEAD_DIM, **given).eval()
    torch.nn.init.normal_(layer.decay.dt)
    torch.nn.init.normal_(layer.norm.weight)
    return layer


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(module) -> int:
    return sum(p.numel() for p in module.parameters())


# against transformers: Kimi Linear, and GLM's layer that bounds the decay


@torch.no_grad()
def with_weights_of(theirs, **given) -> KimiDeltaAttention:
    ours, gate = built(**given), theirs.forget_gate
    rows = (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.g_a_proj, theirs.b_proj, gate.f_a_proj)
    ours.inputs.weight.copy_(torch.cat([module.weight for module in rows]))
    for mine, other in ((ours.gate, theirs.g_b_proj), (ours.decay_up, gate.f_b_proj), (ours.out, theirs.o_proj)):
        mine.weight.copy_(other.weight)
    ours.conv.conv.weight.copy_(theirs.conv1d.weight)
    ours.decay.a_log.copy_(gate.A_log.view(HEADS, 1))
    ours.decay.dt.copy_(gate.dt_bias.view(HEADS, HEAD_DIM))
    ours.norm.weight.copy_(theirs.o_norm.weight)
    return ours


def kimi_linear():
    module = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    config = module.KimiLinearConfig(
        hidden_size=DIM, num_hidden_layers=1, layer_types=["linear_attention"], mlp_layer_types=["dense"],
        num_attention_heads=HEADS, num_key_value_heads=HEADS, linear_num_heads=HEADS, linear_head_dim=HEAD_DIM,
        rms_norm_eps=1e-5, pad_token_id=0, vocab_size=32,
    )  # fmt: skip
    return module.KimiLinearDeltaAttention(config, layer_idx=0), config, {}


def bounded():
    module = pytest.importorskip("transformers.models.glm5_next.modeling_glm5_next")
    config = module.Glm5NextTextConfig(
        hidden_size=DIM, num_hidden_layers=1, layer_types=["linear_attention"], linear_num_heads=HEADS,
        linear_head_dim=HEAD_DIM, linear_lower_bound=-5.0, rms_norm_eps=1e-5, pad_token_id=0, vocab_size=32,
    )  # fmt: skip
    return module.Glm5NextTextLinearAttention(config, layer_idx=0), config, {"decay_floor": -5.0}


@pytest.fixture(params=[kimi_linear, bounded], ids=["kimi linear", "bounded"])
def pair(request):
    torch.manual_seed(0)
    theirs, config, given = request.param()
    theirs.eval()
    with torch.no_grad():
        theirs.forget_gate.A_log.uniform_(math.log(0.1), math.log(4))
        theirs.forget_gate.dt_bias.normal_()
        theirs.o_norm.weight.normal_()
    return with_weights_of(theirs, **given), theirs, config


@each_length
@torch.no_grad()
def test_prefill_equals_transformers(pair, T):
    ours, theirs, _ = pair
    x = drawn(B, T, DIM)
    torch.testing.assert_close(ours(x), theirs(x))


@each_length
@torch.no_grad()
def test_cached_steps_equal_transformers(pair, T):
    ours, theirs, config = pair
    cache = Cache(1, batch=B, capacity=T + 3)
    held = pytest.importorskip("transformers").DynamicCache(config=config)
    x = drawn(B, T + 3, DIM)
    for start, end in ((0, T), (T, T + 1), (T + 1, T + 2), (T + 2, T + 3)):
        piece = x[:, start:end]
        torch.testing.assert_close(ours(piece, cache=cache.views[0]), theirs(piece, cache=held))
        cache.advance(end - start)


# against the formula


def written_out(layer, x, given):
    """The papers' equations in float64, from separate projections, token by token."""
    full, rank, width = given.get("out_gate") == "full", given.get("decay_rank", HEAD_DIM), given.get("conv", 4)
    weight = {name: p.double() for name, p in layer.named_parameters()}
    sizes = [WIDTH] * 3 + [WIDTH if full else HEAD_DIM, HEADS, rank]
    x = x.double()
    q, k, v, gate, beta, f = (x @ rows.T for rows in weight["inputs.weight"].split(sizes))
    seen = F.pad(torch.cat([q, k, v], dim=-1), (0, 0, width - 1, 0)).unfold(1, width, 1)  # (B, T, channels, width)
    q, k, v = F.silu((seen * weight["conv.conv.weight"][:, 0]).sum(-1)).unflatten(-1, (3, HEADS, -1)).unbind(2)
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    f = (f @ weight["decay_up.weight"].T).unflatten(-1, (HEADS, -1)) + weight["decay.dt"]
    rate = weight["decay.a_log"].exp()
    floor = given.get("decay_floor")
    decay = (-rate * torch.log1p(f.exp()) if floor is None else floor * (rate * f).sigmoid()).exp()
    state, outputs = torch.zeros(x.shape[0], HEADS, HEAD_DIM, HEAD_DIM, dtype=torch.float64), []
    for t in range(x.shape[1]):
        state = decay[:, t, :, :, None] * state
        new = beta[:, t, :, None].sigmoid() * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], new)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / math.sqrt(HEAD_DIM))
    y = torch.stack(outputs, dim=1)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight["norm.weight"]
    gate = gate if full else gate @ weight["gate.weight"].T
    return (y.flatten(2) * gate.sigmoid()) @ weight["out.weight"].T


@each_length
@each_variant
@torch.no_grad()
def test_it_equals_its_formula(name, T):
    layer, x = built(**VARIANTS[name]), drawn(B, T, DIM)
    torch.testing.assert_close(layer(x).double(), written_out(layer, x, VARIANTS[name]), rtol=1e-4, atol=1e-5)
    wide = layer.double()
    torch.testing.assert_close(wide(x.double()), written_out(wide, x, VARIANTS[name]), rtol=1e-9, atol=1e-11)


@each_variant
@torch.no_grad()
def test_a_text_in_pieces_equals_the_whole(name):
    layer, x = built(**VARIANTS[name]).double(), drawn(B, 75, DIM).double()
    cache = Cache(1, batch=B, capacity=75)
    outputs = []
    for piece in x.split([3, 1, 69, 1, 1], dim=1):
        outputs.append(layer(piece, cache=cache.views[0]))
        cache.advance(piece.shape[1])
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(x), rtol=1e-9, atol=1e-11)


def test_gradients_equal_those_of_the_formula():
    layer, x = built().double(), drawn(B, 70, DIM).double().requires_grad_()
    tensors = [x, *layer.parameters()]
    came, wanted = (
        torch.autograd.grad((y * drawn(B, 70, DIM, seed=2)).sum(), tensors)
        for y in (layer(x), written_out(layer, x, {}))
    )
    torch.testing.assert_close(came, wanted, rtol=1e-8, atol=1e-10)


def test_a_floor_bounds_the_decay():
    floored, free = (LogDecay(HEADS, HEAD_DIM, floor) for floor in (-5.0, None))
    x = 100 * drawn(B, 7, HEADS, HEAD_DIM)
    assert floored(x).amin() >= -5
    assert floored(x).amax() <= 0
    assert free(x).amin() < -5
    assert free(x).amax() <= 0


def test_decays_start_between_a_thousandth_and_a_tenth_of_the_rate():
    torch.manual_seed(0)
    decay = LogDecay(50, 8)
    step, rate = F.softplus(decay.dt), decay.a_log.exp()
    assert 1e-3 <= step.min() < 2e-3
    assert 5e-2 < step.max() <= 1e-1 + 1e-6
    assert 1 <= rate.min() < 2
    assert 15 < rate.max() <= 16
    assert LogDecay(50, 8, -5.0).a_log.eq(0).all()


# parameters, cost, state


@pytest.mark.parametrize("sizes", [(7168, 96, 128), (2304, 32, 128), (DIM, HEADS, HEAD_DIM)])
@pytest.mark.parametrize("out_gate", ["low_rank", "full"])
def test_parameters(sizes, out_gate):
    """3 d P + 3 P 4 + h + P + (d k + k P) + d h + (d k + k P) + k + P d, P = h k; the full gate is d P."""
    d, h, k = sizes
    P = h * k
    with torch.device("meta"):
        layer = KimiDeltaAttention(d, h, k, out_gate=out_gate)
    low_rank = d * k + k * P
    gate = low_rank if out_gate == "low_rank" else d * P
    assert parameters(layer) == 3 * d * P + 3 * P * 4 + h + P + low_rank + d * h + gate + k + P * d


def test_products_of_a_prefill():
    """Each pair of tokens is scored once, where two spans are joined; the rest as in a decay by head."""
    T, C, k = 128, 64, HEAD_DIM
    with torch.device("meta"):
        layer, x = KimiDeltaAttention(DIM, HEADS, HEAD_DIM), torch.empty(1, T, DIM)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    linear = 2 * T * (DIM * (3 * WIDTH + 2 * k + HEADS) + 2 * k * WIDTH + WIDTH * DIM)
    products = 2 * k * C * (C - 1)  # two scores for each pair below the diagonal
    products += 2 * sum(2 * span**3 * (C // (2 * span)) for span in (1, 2, 4, 8, 16, 32))  # the inverse
    products += 2 * C * (2 * C * k + 2 * k * k)  # erase and write; what is erased, and the state
    products += 2 * C * (k * k + C * k)  # what is read
    convolution = 2 * T * 3 * WIDTH * 4
    assert counter.get_total_flops() == linear + convolution + HEADS * products * T // C


@torch.no_grad()
def test_the_state_is_float32_and_does_not_grow():
    layer, sizes = built(**K3).to(torch.bfloat16), set()
    cache = Cache(1, batch=B, capacity=80, dtype=torch.float16)  # keys and values would be held in half precision
    for size in (1, 1, 5, 70, 3):
        layer(drawn(B, size, DIM).bfloat16(), cache=cache.views[0])
        cache.advance(size)
        sizes.add((cache.held().states, cache.held().tokens))
    assert sizes == {(B * (HEADS * HEAD_DIM**2 * 4 + 3 * 3 * WIDTH * 2), 0)}


@each_variant
@torch.no_grad()
def test_bfloat16_stays_near_float32(name):
    layer, half = built(**VARIANTS[name]), built(**VARIANTS[name]).to(torch.bfloat16)
    x = drawn(B, 130, DIM).bfloat16()
    out, wanted = half(x), layer(x.float())
    assert out.dtype == torch.bfloat16
    assert (out.float() - wanted).norm() < 0.02 * wanted.norm()


def test_rates_stay_float32_in_a_bfloat16_model():
    written = {"dim": DIM, "heads": HEADS, "attention": {"kda": K3}}
    block = build(written, scope="block", device="cpu", dtype="bfloat16")
    kept = {name.rsplit(".", 1)[-1] for name, p in block.named_parameters() if p.dtype == torch.float32}
    assert kept == {"a_log", "dt"}


def test_only_the_output_scales_what_the_branch_adds():
    """The norm behind the state takes any scale out of the values: they are not offered to be scaled."""
    layer, x = built(), drawn(B, 5, DIM)
    out = layer(x)
    assert layer.branch_weights() == {"value": [], "input": [], "output": [layer.out.weight]}
    with torch.no_grad():
        layer.inputs.weight[2 * WIDTH :][:WIDTH] *= 100
        scaled = layer(x)
    assert scaled.norm() < 2 * out.norm()
