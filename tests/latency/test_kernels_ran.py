"""What attention ran, told from a real call: fused kernels, the fallback to math, other ways, and nothing."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from explorer import build
from explorer.latency.implementation import Compiled
from explorer.latency.kernels_ran import _words, attention_kernels, fell_back

HEADS, T, WIDTH = 4, 6, 8
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()


def attention(kv_heads=HEADS, value_width=WIDTH, dtype=torch.float32, grad=False, **options):
    """A call of torch's attention, with its backward where gradients are wanted."""
    shapes = (HEADS, WIDTH), (kv_heads, WIDTH), (kv_heads, value_width)
    q, k, v = (torch.randn(2, heads, T, width, dtype=dtype, requires_grad=grad) for heads, width in shapes)

    def call():
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=kv_heads != HEADS, **options)
        if grad:
            y.sum().backward()

    return call


# What the kernels of the CPU take in torch 2.13.
RAN = {
    "plain": ({}, "flash"),
    "causal": ({"is_causal": True}, "flash"),
    "mask": ({"attn_mask": CAUSAL}, "flash"),
    "grouped": ({"kv_heads": 2}, "flash"),
    "float64": ({"dtype": torch.float64}, "flash"),
    "bfloat16": ({"dtype": torch.bfloat16}, "flash"),
    "backward": ({"grad": True}, "flash"),
    "widths differ": ({"value_width": 4}, "math"),
    "dropout": ({"dropout_p": 0.5}, "math"),
    "gradient of a mask": ({"attn_mask": torch.zeros(T, T, requires_grad=True), "grad": True}, "math"),
}


@pytest.mark.parametrize(("options", "expected"), RAN.values(), ids=RAN)
def test_the_kernel_that_ran(options, expected):
    assert attention_kernels(attention(**options)) == (expected,)


def test_each_kernel_is_named_once_in_the_order_of_running():
    fused, unfused = attention(), attention(dropout_p=0.5)

    def call():
        fused(), unfused(), fused()

    assert attention_kernels(call) == ("flash", "math")


def test_a_module_that_writes_its_scores_out_calls_none():
    q, k = torch.randn(2, HEADS, T, WIDTH), torch.randn(2, HEADS, T, WIDTH)
    assert attention_kernels(lambda: (q @ k.mT).softmax(-1) @ k) == ("none",)


BLOCKS = {
    "mha": ({}, "flash"),
    "mha_naive": ({"attention": "mha_naive"}, "flash"),
    "softcap": ({"attention": {"mha": {"softcap": 5.0}}}, "none"),
    "linear": ({"attention": "linear"}, "none"),
    "no attention": ({"attention": "none"}, "none"),
}


@pytest.mark.parametrize(("fields", "expected"), BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("train", [False, True])
def test_blocks(fields, expected, train):
    block = build({"dim": 16, "heads": 2, **fields}, "block", device="cpu").train(train)
    x = torch.randn(2, T, 16, requires_grad=train)

    def call():
        y = block(x)
        if train:
            y.sum().backward()

    assert attention_kernels(call) == (expected,)


NAMES = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_cudnn_attention_backward": "cudnn",
    "aten::_scaled_dot_product_fused_attention_overrideable": "device",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_scaled_dot_product_attention_math_for_mps": "device",
    "FlexAttentionAutogradOpBackward": "flex",
    "aten::scaled_dot_product_attention": None,
    "aten::bmm": None,
}


@pytest.mark.parametrize(("operator", "word"), NAMES.items())
def test_operators_of_all_devices(operator, word):
    assert list(_words(operator)) == ([] if word is None else [word])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flex_attention():
    q, k, v = (torch.randn(1, 2, 128, 16) for _ in "qkv")
    assert attention_kernels(lambda: flex_attention(q, k, v)) == ("flex",)


def test_math_among_kernels_that_may_be_fused_is_a_fallback():
    assert fell_back(("flash", "math")) == (
        "attention fell back to the unfused math kernel: no fused one takes its masks, widths, dropout or dtype"
    )
    assert fell_back(("flash",)) is None
    assert fell_back(("none",)) is None


def test_math_on_purpose_is_none():
    with sdpa_kernel(SDPBackend.MATH):
        call = attention()
        assert attention_kernels(call) == ("math",)
        assert fell_back(("math",)) is None


class Attention(torch.nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, q):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=self.dropout)


def test_looking_at_compiled_code_compiles_nothing_anew():
    one, q = Compiled(Attention(0.0), backend="aot_eager"), torch.randn(2, HEADS, T, WIDTH)
    one.call(q)
    assert attention_kernels(lambda: one.call(q)) == ("flash",)
    assert one.facts()["compiles"] == 1


def test_what_a_compiler_makes_of_math_is_still_math():
    one, q = Compiled(Attention(0.5), backend="aot_eager"), torch.randn(2, HEADS, T, WIDTH)
    one.call(q)
    assert attention_kernels(lambda: one.call(q), eager=("math",)) == ("math",)
    assert attention_kernels(lambda: one.call(q)) == ("none",)
    assert attention_kernels(lambda: q + 1, eager=("math",)) == ("none",)


def test_nothing_is_left_behind(capfd):
    before = dict(os.environ)
    attention_kernels(attention())
    assert dict(os.environ) == before
    assert capfd.readouterr() == ("", "")
