"""Clamped SwiGLU against its formula, gpt-oss's and DeepSeek-V4's experts in transformers."""

from __future__ import annotations

import pytest
import torch
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Experts
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from explorer_activations.swiglu import SwiGLU
from explorer_activations.swiglu_clamped import ClampedSwiGLU

gate, up = (12 * torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
GPT_OSS = {"limit": 7.0, "alpha": 1.702, "up_offset": 1.0}


@pytest.mark.parametrize("options", [{}, {"limit": 10.0}, GPT_OSS, {"alpha": 0.5}, {"up_offset": -0.5}], ids=str)
def test_equals_its_formula_in_float64(options):
    limit, alpha, offset = ({"limit": 7.0, "alpha": 1.0, "up_offset": 0.0} | options).values()
    g, u = gate.double().clamp(max=limit), up.double().clamp(-limit, limit)
    expected = g / (1 + (-alpha * g).exp()) * (u + offset)
    torch.testing.assert_close(ClampedSwiGLU(**options)(gate, up), expected.float())


def test_equals_gpt_oss():
    """Its columns alternate: gate, up, gate, up."""
    experts = GptOssExperts(GptOssConfig(num_local_experts=1, hidden_size=4, intermediate_size=4))
    theirs = experts._apply_gate(torch.stack([gate, up], dim=-1).flatten(-2))
    torch.testing.assert_close(ClampedSwiGLU(**GPT_OSS)(gate, up), theirs)


def test_equals_deepseek_v4():
    config = DeepseekV4Config(n_routed_experts=1, hidden_size=4, moe_intermediate_size=4)
    theirs = DeepseekV4Experts(config)._apply_gate(torch.cat([gate, up], dim=-1))
    torch.testing.assert_close(ClampedSwiGLU(limit=10.0)(gate, up), theirs)


def test_is_swiglu_where_nothing_reaches_the_limit():
    torch.testing.assert_close(ClampedSwiGLU(limit=100.0)(gate, up), SwiGLU()(gate, up))


def test_the_gate_is_cut_from_above_only_and_the_rest_on_both_sides():
    far, one = torch.tensor([-100.0, 100.0]), torch.ones(2)
    torch.testing.assert_close(ClampedSwiGLU(limit=2.0)(one, far), SwiGLU()(one, torch.tensor([-2.0, 2.0])))
    torch.testing.assert_close(ClampedSwiGLU(limit=2.0)(far, one), SwiGLU()(torch.tensor([-100.0, 2.0]), one))
