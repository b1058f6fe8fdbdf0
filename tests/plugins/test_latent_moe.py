"""Experts in a latent width: Kimi K3's formula written out in float64, its parameters and its FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import Tensor

from tests.plugins import mixtures
from tests.plugins.mixtures import DIM, EXPERTS, HIDDEN, TOP_K, mixture, x

LATENT = 12
SIZES = {**mixtures.SIZES, "latent": LATENT}
K3 = {"router": "sigmoid", "selection_bias": True, "scale": 2.5, "shared": 2}
SITU = {"situ_glu": {"beta": 4, "linear_beta": 25}}
made, row = partial(mixtures.made, name="latent_moe"), partial(mixtures.row, name="latent_moe")


def situ_glu(gate: Tensor, up: Tensor) -> Tensor:
    return 4 * torch.tanh(gate / 4) * torch.sigmoid(gate) * 25 * torch.tanh(up / 25)


def token_by_token(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """y = shared(x) + W_up RMSNorm(sum p_i E_i(W_down x)), one token and one expert at a time."""

    def feedforward(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        gate, linear = (up @ x).chunk(2)
        return down @ situ_glu(gate, linear)

    out = []
    for token in x.flatten(0, 1):
        scores = torch.sigmoid(weights["router.linear.weight"] @ token)
        chosen = (scores + weights["router.choice.selection_bias"]).topk(TOP_K).indices
        p = 2.5 * scores[chosen] / scores[chosen].sum()
        inner = weights["experts.down.weight"] @ token
        up, down = weights["experts.experts.up"], weights["experts.experts.down"]
        u = sum(p[i] * feedforward(inner, up[e], down[e]) for i, e in enumerate(chosen))
        normed = u / (u.square().mean() + 1e-5).sqrt() * weights["experts.norm.weight"]
        shared = feedforward(token, weights["shared.expert.up.weight"], weights["shared.expert.down.weight"])
        out.append(shared + weights["experts.up.weight"] @ normed)
    return torch.stack(out).view_as(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_k3s_formula(dtype: torch.dtype) -> None:
    block = made({**SIZES, **K3, "norm": {"rmsnorm": {"eps": 1e-5}}}, activation=SITU)
    ours = mixture(block)
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*ours.parameters(), *ours.buffers()):
            tensor.copy_(torch.randn_like(tensor) / tensor.shape[-1] ** 0.5)
    ours = ours.to(dtype)
    out = ours(x().to(dtype))
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in ours.state_dict().items()}
    wanted = token_by_token(exact, x().to(dtype).double())
    close = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), wanted, rtol=close, atol=close)
    if dtype != torch.bfloat16:
        target = torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        (out.double() * target).sum().backward()
        (wanted * target).sum().backward()
        for name, parameter in ours.named_parameters():
            torch.testing.assert_close(parameter.grad.double(), exact[name].grad, rtol=10 * close, atol=10 * close)


def test_parameters_of_kimi_k3() -> None:
    """Also a published MLA block less its attention, two norms, and the queries and key norms of AttnRes."""
    d, E, f, latent = 7168, 896, 3072, 3584
    sizes = {"experts": E, "top_k": 16, "hidden": f, "latent": latent}
    ours = mixture(made({**sizes, **K3}, device="meta", dim=d, activation=SITU))
    wanted = d * E + 3 * latent * f * E + 3 * d * 2 * f + 2 * d * latent + latent
    assert sum(p.numel() for p in ours.parameters()) == wanted
    assert wanted == 30_017_175_040 - 232_196_096 - 6 * d
    assert [name for name, _ in ours.named_buffers()] == ["router.choice.selection_bias"]


@pytest.mark.parametrize(("phase", "passes"), [("prefill", 1), ("train", 3)])
def test_active_parameters_and_flops(phase: str, passes: int) -> None:
    """What a token uses: the router, both latent maps, the norm, its experts in the latent width, the shared ones."""
    found = row({**SIZES, "shared": 2}, phase=phase)
    matrices = 64 * EXPERTS + 2 * 64 * LATENT + 3 * LATENT * HIDDEN * TOP_K + 3 * 64 * 2 * HIDDEN
    assert found["params"]["active"] == matrices + LATENT
    assert found["params"]["block"] == matrices + LATENT + 3 * LATENT * HIDDEN * (EXPERTS - TOP_K)
    (cost,) = found["costs"]
    assert (cost["matmul_flops"], cost["incomplete"]) == (passes * 2 * 10 * 2 * matrices, [])


def test_the_norm_is_chosen() -> None:
    assert isinstance(mixture(made(SIZES)).experts.norm, type(mixture(made({**SIZES, "norm": "rmsnorm"})).experts.norm))
    plain = mixture(made({**SIZES, "norm": {"layernorm": {"bias": True}}}))
    assert {name for name, _ in plain.experts.norm.named_parameters()} == {"weight", "bias"}


def test_widths_are_ratios_of_dim() -> None:
    ours = mixture(made({**SIZES, "hidden": {"ratio": "3/2"}, "latent": {"ratio": "1/2"}}))
    assert ours.experts.experts.down.shape == (EXPERTS, DIM // 2, 3 * DIM // 2)


def test_biases_reach_every_linear_map() -> None:
    ours = mixture(made({**SIZES, "shared": 1}, bias=True))
    biases = sum(p.numel() for name, p in ours.named_parameters() if name.endswith("bias"))
    assert biases == EXPERTS + LATENT + DIM + EXPERTS * (2 * HIDDEN + LATENT) + 2 * HIDDEN + DIM


def test_what_a_residual_may_rescale_stands_behind_the_norm() -> None:
    """A factor on anything before it changes nothing: DeepNorm's beta would be without effect there."""
    ours = mixture(made({**SIZES, "shared": 1, "norm": {"rmsnorm": {"eps": 1e-12}}})).double()
    weights = ours.branch_weights()
    assert [tuple(w.shape) for w in weights["output"]] == [(DIM, LATENT), (DIM, HIDDEN)]
    assert [tuple(w.shape) for w in weights["input"]] == [(HIDDEN, DIM)] * 2
    assert weights["value"] == []
    out, tokens = ours(x().double()), x().double()
    with torch.no_grad():
        ours.experts.experts.down.mul_(2.0)
        torch.testing.assert_close(ours(tokens), out, rtol=1e-4, atol=1e-4)  # the eps of the norm
        ours.experts.up.weight.mul_(0.5)
        ours.shared.expert.down.weight.mul_(0.5)
        torch.testing.assert_close(ours(tokens), out / 2, rtol=1e-4, atol=1e-4)
