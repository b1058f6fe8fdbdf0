"""Gated DeltaNet against transformers' Qwen3-Next module with the same weights, and what it costs and keeps."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from explorer import Cache, build
from explorer_attentions.gated_deltanet import GatedDeltaNet
from explorer_attentions.short_conv import ShortConvolution

DIM, HEADS, HEAD_DIM, B = 16, 4, 6, 2
QWEN = {"key_heads": 2, "value_heads": 4, "key_dim": 6, "value_dim": 8}  # its proportions: two value heads a key head
LENGTHS = [3, 70]  # within a chunk, and over its border


def built(**parameters) -> GatedDeltaNet:
    torch.manual_seed(0)
    layer = GatedDeltaNet(DIM, HEADS, HEAD_DIM, **parameters).eval()
    torch.nn.init.normal_(layer.decay.dt)
    torch.nn.init.normal_(layer.norm.weight)
    return layer


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(module) -> int:
    return sum(p.numel() for p in module.parameters())


# against transformers


@pytest.fixture(scope="module")
def qwen():
    return pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")


def config_of(qwen, layers=1):
    return qwen.Qwen3NextConfig(
        hidden_size=DIM, num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=2, vocab_size=32,
        layer_types=["linear_attention"] * layers, rms_norm_eps=1e-6, linear_conv_kernel_dim=4,
        linear_num_key_heads=QWEN["key_heads"], linear_num_value_heads=QWEN["value_heads"],
        linear_key_head_dim=QWEN["key_dim"], linear_value_head_dim=QWEN["value_dim"],
    )  # fmt: skip


@torch.no_grad()
def with_weights_of(theirs) -> GatedDeltaNet:
    """Their fused projections go by key head: [q | k | values of its heads | gates], and [beta | decay]."""
    ours = built(**QWEN)
    heads, ratio = QWEN["key_heads"], QWEN["value_heads"] // QWEN["key_heads"]
    values = ratio * QWEN["value_dim"]
    wide, narrow = theirs.in_proj_qkvz.weight, theirs.in_proj_ba.weight
    rows = [
        t.flatten(0, 1) for t in wide.view(heads, -1, DIM).split([QWEN["key_dim"], QWEN["key_dim"], values, values], 1)
    ]
    rows += [t.flatten(0, 1) for t in narrow.view(heads, -1, DIM).split([ratio, ratio], 1)]
    ours.inputs.weight.copy_(torch.cat(rows))
    ours.conv.conv.weight.copy_(theirs.conv1d.weight)
    ours.decay.a_log.copy_(theirs.A_log[:, None])
    ours.decay.dt.copy_(theirs.dt_bias[:, None])
    ours.norm.weight.copy_(theirs.norm.weight)
    ours.out.weight.copy_(theirs.out_proj.weight)
    return ours


@pytest.fixture(scope="module")
def pair(qwen):
    torch.manual_seed(0)
    theirs = qwen.Qwen3NextGatedDeltaNet(config_of(qwen), layer_idx=0).eval()
    torch.nn.init.normal_(theirs.norm.weight)
    torch.nn.init.normal_(theirs.dt_bias)
    return with_weights_of(theirs), theirs


@pytest.mark.parametrize("T", LENGTHS)
@torch.no_grad()
def test_prefill_equals_transformers(pair, T):
    ours, theirs = pair
    x = drawn(B, T, DIM)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("T", LENGTHS)
@torch.no_grad()
def test_cached_steps_equal_transformers(qwen, pair, T):
    ours, theirs = pair
    cache = Cache(1, batch=B, capacity=T + 3)
    held = pytest.importorskip("transformers").DynamicCache(config=config_of(qwen))
    x = drawn(B, T + 3, DIM)
    for start, end in ((0, T), (T, T + 1), (T + 1, T + 2), (T + 2, T + 3)):
        piece = x[:, start:end]
        torch.testing.assert_close(ours(piece, cache=cache.views[0]), theirs(piece, cache=held))
        cache.advance(end - start)


@torch.no_grad()
def test_gradients_equal_transformers(pair):
    ours, theirs = pair
    x = drawn(B, 70, DIM)
    with torch.enable_grad():
        for module in pair:
            module.zero_grad()
            (module(x) * drawn(B, 70, DIM, seed=2)).sum().backward()
    torch.testing.assert_close(ours.decay.a_log.grad[:, 0], theirs.A_log.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.conv.conv.weight.grad, theirs.conv1d.weight.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.out.weight.grad, theirs.out_proj.weight.grad, rtol=1e-4, atol=1e-5)


# parameters, cost, state


SIZES = {
    "qwen3-next": (2048, 16, 256, {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128}),
    "defaults": (DIM, HEADS, HEAD_DIM, {}),
    "toy": (DIM, HEADS, HEAD_DIM, QWEN),
}


@pytest.mark.parametrize("name", SIZES)
def test_parameters(name):
    """d (2K + 2V) + 2 d h_v + 4 (2K + V) + 2 h_v + k_v + V d, K and V over all heads."""
    dim, heads, head_dim, given = SIZES[name]
    h_k, h_v = given.get("key_heads", heads), given.get("value_heads", heads)
    k_k, k_v = given.get("key_dim", head_dim), given.get("value_dim", head_dim)
    K, V = h_k * k_k, h_v * k_v
    with torch.device("meta"):
        layer = GatedDeltaNet(dim, heads, head_dim, **given)
    assert parameters(layer) == dim * (2 * K + 2 * V) + 2 * dim * h_v + 4 * (2 * K + V) + 2 * h_v + k_v + V * dim


def test_products_of_a_prefill():
    """Projections, convolution and, for each chunk of C tokens, what the chunkwise form needs."""
    T, C, K, V, h_k, h_v = 128, 64, QWEN["key_dim"], QWEN["value_dim"], QWEN["key_heads"], QWEN["value_heads"]
    with torch.device("meta"):
        layer = GatedDeltaNet(DIM, HEADS, HEAD_DIM, **QWEN)
        x = torch.empty(1, T, DIM)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    channels = 2 * h_k * K + h_v * V
    linear = 2 * T * DIM * (channels + h_v * V + 2 * h_v + h_v * V)
    products = 2 * h_k * 2 * C * C * K  # q k^T and k k^T
    products += h_v * 2 * sum(2 * span**3 * (C // (2 * span)) for span in (1, 2, 4, 8, 16, 32))  # the inverse
    products += h_v * 2 * C * (C * (K + V) + 2 * K * V)  # erase and write; what is erased, and the state
    products += h_v * 2 * C * (K * V + C * V)  # what is read
    convolution = 2 * T * channels * 4
    assert counter.get_total_flops() == linear + convolution + products * T // C


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_the_state_is_float32_and_does_not_grow(dtype):
    layer = built(**QWEN).to(dtype)
    x, sizes = drawn(B, 80, DIM).to(dtype), set()
    cache = Cache(1, batch=B, capacity=80, dtype=torch.float16)  # keys and values would be held in half precision
    for size in (1, 1, 5, 70, 3):
        layer(x[:, :size], cache=cache.views[0])
        cache.advance(size)
        sizes.add((cache.held().states, cache.held().tokens))
    channels = 2 * QWEN["key_heads"] * QWEN["key_dim"] + QWEN["value_heads"] * QWEN["value_dim"]
    state = QWEN["value_heads"] * QWEN["key_dim"] * QWEN["value_dim"]
    assert sizes == {(B * (state * 4 + 3 * channels * dtype.itemsize), 0)}


@torch.no_grad()
def test_the_state_keeps_no_text_alive():
    layer, cache = built(), Cache(1, batch=B, capacity=70)
    layer(drawn(B, 70, DIM), cache=cache.views[0])
    for name in ("state", "inputs"):
        held = cache.views[0].state(name, lambda: pytest.fail("there is a state"))
        assert held.untyped_storage().nbytes() == held.nbytes


@torch.no_grad()
def test_bfloat16_stays_near_float32():
    layer = built(**QWEN)
    half = built(**QWEN).to(torch.bfloat16)
    x = drawn(B, 130, DIM).bfloat16()
    out = half(x)
    assert out.dtype == torch.bfloat16
    wanted = layer(x.float())
    assert (out.float() - wanted).norm() < 0.02 * wanted.norm()


def test_rates_stay_float32_in_a_bfloat16_model():
    block = build(
        {"dim": DIM, "heads": HEADS, "attention": "gated_deltanet"}, scope="block", device="cpu", dtype="bfloat16"
    )
    kept = {name.rsplit(".", 1)[-1] for name, p in block.named_parameters() if p.dtype == torch.float32}
    assert kept == {"a_log", "dt"}


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="value_heads 6 must divide by key_heads 4"):
        GatedDeltaNet(DIM, HEADS, HEAD_DIM, value_heads=6)


def test_only_the_output_scales_what_the_branch_adds():
    """The norm behind the state takes any scale out of the values: they are not offered to be scaled."""
    layer, x = built(**QWEN), drawn(B, 5, DIM)
    out, keys = layer(x), 2 * QWEN["key_heads"] * QWEN["key_dim"]
    assert layer.branch_weights() == {"value": [], "input": [], "output": [layer.out.weight]}
    with torch.no_grad():
        layer.inputs.weight[keys:][: QWEN["value_heads"] * QWEN["value_dim"]] *= 100
        scaled = layer(x)
    assert scaled.norm() < 2 * out.norm()


# the short convolution


@pytest.mark.parametrize("width", [1, 2, 4])
@torch.no_grad()
def test_the_convolution_reads_the_last_tokens_of_its_channel(width):
    torch.manual_seed(0)
    conv, x = ShortConvolution(3, width), drawn(B, 6, 3)
    wanted = torch.zeros(B, 6, 3, dtype=torch.float64)
    for t in range(6):
        for back in range(min(width, t + 1)):
            wanted[:, t] += conv.conv.weight[:, 0, width - 1 - back].double() * x[:, t - back].double()
    wanted = wanted * wanted.sigmoid()
    torch.testing.assert_close(conv(x).double(), wanted, rtol=1e-5, atol=1e-6)
    cache = Cache(1, batch=B, capacity=6).views[0]
    pieces = [conv(piece, cache) for piece in x.split([1, 2, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), conv(x))
