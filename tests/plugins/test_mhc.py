"""mHC against the paper's equations in float64 and transformers' DeepSeek-V4; its mixing matrix, start and cost."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek_v4

import explorer
from explorer_residuals.mhc import ManifoldHyperConnections
from explorer_residuals.sinkhorn import sinkhorn
from tests.plugins.residual_stacks import (
    DIM,
    PRE,
    added_params,
    branches,
    drawn,
    flops_per_dim,
    model_of,
    moved,
    random_model,
    residuals,
    site,
)

WEIGHTED = {"mhc": {"leave": "weighted"}}
IDENTITY = {"mhc": {"start": "identity"}}


def normed(X):
    """The row vector v: one RMSNorm over all of vec(X), without gain."""
    v = X.reshape(1, -1)
    return v / torch.sqrt((v * v).mean() + 1e-6)


def mapped(residual, X):
    """H_pre (1, n), H_post (1, n), H_res (n, n) of one token, X (n, dim)."""
    n = residual.streams
    phi_pre, phi_post, phi_res = residual.phi.T.split([n, n, n * n], dim=1)  # (n dim, ...)
    b_pre, b_post, b_res = residual.bias.split([n, n, n * n])
    a_pre, a_post, a_res = residual.alpha
    v = normed(X)
    H_pre = 1 / (1 + torch.exp(-(a_pre * (v @ phi_pre) + b_pre)))
    H_post = 2 / (1 + torch.exp(-(a_post * (v @ phi_post) + b_post)))
    # Ours lie column by column, as DeepSeek-V4's do.
    M = torch.exp((a_res * (v @ phi_res) + b_res).reshape(n, n).T / residual.temperature)
    for _ in range(residual.iterations):
        M = M / M.sum(0, keepdim=True)
        M = M / M.sum(1, keepdim=True)
    return H_pre, H_post, M


def manifold_connected(model, x):
    """X' = H_res X + H_post^T F(H_pre X), one token at a time."""
    *sites, leave = residuals(model)
    X = torch.stack([x] * sites[0].streams)
    for residual, branch in zip(sites, branches(model), strict=True):
        H_pre, H_post, H_res = mapped(residual, X)
        y = branch((H_pre @ X)[None])[0]
        X = H_res @ X + H_post.T @ y
    if leave.head is None:
        return model.stack.final_norm(X.sum(0))
    head = leave.head
    w = torch.sigmoid(head.alpha * (normed(X) @ head.phi.T) + head.bias)
    return model.stack.final_norm((w @ X)[0])


@pytest.mark.parametrize(
    "chosen",
    [{}, {"streams": 2, "leave": "weighted"}, {"streams": 3, "iterations": 3, "temperature": 0.5}, {"streams": 1}],
    ids=str,
)
def test_stack_equals_the_formula(chosen):
    model = random_model({"mhc": chosen})
    x = drawn(3, 1, DIM).double()  # one token each: attention sees itself only
    wanted = torch.stack([manifold_connected(model, row) for row in x[:, 0]])
    torch.testing.assert_close(model(x)[:, 0], wanted)


def theirs_and_ours(dim, eps):
    """A HyperConnection and a HyperHead of DeepSeek-V4 with random weights, and ours with the same."""
    config = SimpleNamespace(hc_mult=4, hc_sinkhorn_iters=20, hc_eps=eps, rms_norm_eps=1e-6, hidden_size=dim)
    theirs, head = deepseek_v4.DeepseekV4HyperConnection(config), deepseek_v4.DeepseekV4HyperHead(config)
    ours = ManifoldHyperConnections(dim, site(0), leave="weighted")
    end = ManifoldHyperConnections(dim, site(6), leave="weighted")
    with torch.no_grad():
        for seed, weight in enumerate((theirs.fn, theirs.base, theirs.scale, head.hc_fn, head.hc_base, head.hc_scale)):
            weight.copy_(drawn(*weight.shape, seed=seed) / math.sqrt(weight.shape[-1] if weight.ndim > 1 else 1))
        pairs = ((ours.phi, theirs.fn), (ours.bias, theirs.base), (ours.alpha, theirs.scale))
        at_end = ((end.head.phi, head.hc_fn), (end.head.bias, head.hc_base), (end.head.alpha, head.hc_scale[0]))
        for mine, weight in (*pairs, *at_end):
            mine.copy_(weight)
    return theirs, head, ours, end


# V4 adds 1e-6 to H_pre, to the softmax and to each sum of Sinkhorn. Without that, the paper's formula, it equals ours
# to float32; with it, the outputs of these weights move by up to 4e-5 for streams of unit variance.
@pytest.mark.parametrize(("eps", "tolerance"), [(0.0, {}), (1e-6, {"rtol": 1e-5, "atol": 5e-5})])
@pytest.mark.parametrize("dim", [16, 128])
def test_site_and_head_equal_deepseek_v4(dim, eps, tolerance):
    theirs, head, ours, end = theirs_and_ours(dim, eps)
    X, y = drawn(2, 5, 4, dim), drawn(2, 5, dim, seed=1)
    post, comb, collapsed = theirs(X)
    seen, state = ours.read(X)
    torch.testing.assert_close(seen, collapsed, **tolerance)
    # As the decoder layer does it.
    wanted = post.unsqueeze(-1) * y.unsqueeze(-2) + torch.matmul(comb.transpose(-1, -2), X)
    torch.testing.assert_close(ours.write(state, y), wanted, **tolerance)
    torch.testing.assert_close(end.leave(X), head(X), **tolerance)


def test_gradients_equal_deepseek_v4():
    theirs, _, ours, _ = theirs_and_ours(16, 0.0)
    X, y = drawn(2, 5, 4, 16), drawn(2, 5, 16, seed=1)
    post, comb, collapsed = theirs(X)
    out = post.unsqueeze(-1) * (y * collapsed).unsqueeze(-2) + torch.matmul(comb.transpose(-1, -2), X)
    seen, state = ours.read(X)
    for result in (out, ours.write(state, y * seen)):
        (result * drawn(*result.shape, seed=2)).sum().backward()
    for mine, weight in ((ours.phi, theirs.fn), (ours.bias, theirs.base), (ours.alpha, theirs.scale)):
        torch.testing.assert_close(mine.grad, weight.grad, rtol=1e-4, atol=1e-4)  # sums over 10 tokens of order 10


@pytest.mark.parametrize("placement", ["pre", "sandwich", "res_post"])
def test_identity_start_equals_the_plain_residual(placement):
    """Not only nearly: streams that start equal stay equal, H_pre and the rows of H_res sum to 1, H_post is 1."""
    plain, ours = model_of("add", placement=placement), model_of(IDENTITY, placement=placement)
    ours.load_state_dict(plain.state_dict(), strict=False)
    x = drawn(2, 5, DIM)
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-5, atol=1e-5)


def test_identity_start_of_the_mappings():
    """One-hot at the site's index modulo n, ones, and the identity, but for e^-8 = 3.4e-4 in all."""
    for index in range(6):
        pre, post, mix = ManifoldHyperConnections(DIM, site(index), start="identity").coefficients(drawn(2, 5, 4, DIM))
        torch.testing.assert_close(pre, torch.eye(4)[index % 4].expand_as(pre), rtol=0, atol=3.4e-4)
        torch.testing.assert_close(pre.sum(-1), torch.ones(2, 5))
        torch.testing.assert_close(post, torch.ones_like(post))
        torch.testing.assert_close(mix, torch.eye(4).expand_as(mix), rtol=0, atol=1.1e-3)
        torch.testing.assert_close(mix[..., 0, 1], torch.full((2, 5), 3.35e-4), rtol=1e-3, atol=0)


def test_uniform_start_of_the_mappings():
    """b = 0 and a = 0.01: H_pre 1/2, H_post 1, H_res 1/n, moved a little by the token; and so no two streams alike."""
    residual = ManifoldHyperConnections(DIM, site(0))
    X = drawn(2, 5, 4, DIM)
    for came, wanted in zip(residual.coefficients(X), (0.5, 1.0, 0.25), strict=True):
        torch.testing.assert_close(came, torch.full_like(came, wanted), rtol=0, atol=0.02)
    pre, post, _ = residual.coefficients(residual.enter(drawn(2, 5, DIM)))
    for came in (pre, post):
        assert came.std(-1).min().item() > 0


# F12
@pytest.mark.parametrize(("std", "columns"), [(1.0, 1e-4), (3.0, 1e-3)])
def test_f12_the_mixing_matrix_is_doubly_stochastic(std, columns):
    """20 steps are approximate: of matrices of std 3 three in five are within 1e-3, and all once there are enough."""
    logits = std * drawn(1000, 4, 4)
    mix = sinkhorn(logits, 20)
    assert mix.min().item() >= 0
    torch.testing.assert_close(mix.sum(-1), torch.ones(1000, 4), rtol=0, atol=1e-6)
    missed = (mix.sum(-2) - 1).abs().amax(-1)
    assert missed.median().item() < columns
    assert missed.max().item() < 0.06
    torch.testing.assert_close(sinkhorn(logits, 2000).sum(-2), torch.ones(1000, 4), rtol=0, atol=1e-3)


def test_f12_no_logit_is_too_large():
    mix = sinkhorn(1000 * drawn(100, 4, 4), 20)
    assert bool(mix.isfinite().all())
    torch.testing.assert_close(mix.sum(-1), torch.ones(100, 4), rtol=0, atol=1e-6)


@pytest.mark.parametrize("chosen", [{}, {"start": "identity"}], ids=str)
def test_f12_one_stream_is_the_plain_residual(chosen):
    one = {"mhc": {"streams": 1, **chosen}}
    *_, mix = ManifoldHyperConnections(DIM, site(0), **one["mhc"]).coefficients(drawn(2, 5, 1, DIM))
    torch.testing.assert_close(mix, torch.ones(2, 5, 1, 1), rtol=0, atol=0)
    plain, ours = model_of("add"), model_of(one)
    ours.load_state_dict(plain.state_dict(), strict=False)
    for residual in residuals(ours):
        if hasattr(residual, "phi"):
            torch.nn.init.zeros_(residual.phi)  # H_post is then 1; the norm of the sublayer takes H_pre out
    x = drawn(2, 5, DIM)
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-5, atol=1e-5)


def off_diagonal_gradient(temperature):
    """Of the mixing logits at an identity start, and an entry off the diagonal."""
    residual = ManifoldHyperConnections(DIM, site(0), start="identity", temperature=temperature)
    *_, mix = residual.coefficients(drawn(2, 5, 4, DIM))
    (mix * drawn(*mix.shape, seed=1)).sum().backward()
    return residual.bias.grad[8:].abs().max().item(), mix[0, 0, 0, 1].item()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_f12_mixing_logits_learn(temperature):
    gradient, off = off_diagonal_gradient(temperature)
    assert gradient > 0
    assert off == pytest.approx(math.exp(-8 / temperature), rel=0.01)


@pytest.mark.parametrize("temperature", [0.2, 0.08, 0.05])
def test_f12_a_start_without_gradient_warns(temperature):
    with pytest.warns(
        UserWarning, match=rf"at temperature {temperature}.*gradient is lost .* raise the temperature"
    ) as said:
        gradient, off = off_diagonal_gradient(temperature)
    assert abs(gradient) < 1e-14
    assert off < 1e-14
    assert temperature > 0.05 or (gradient, off) == (0, 0)
    assert "safe" not in str(said[0].message)


def learning(chosen, steps):
    """By site, the largest gradient of [pre, post, res] of b and of phi and of a_res, of the largest in the model."""
    model = random_model({"mhc": {}}) if chosen is None else model_of({"mhc": chosen}).double()
    x, target = (drawn(2, 5, DIM, seed=seed).double() for seed in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps + 1):
        optimizer.zero_grad()
        (model(x) * target).sum().backward()
        if step < steps:
            optimizer.step()
    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
    by_site = []
    for residual in (module for module in residuals(model) if hasattr(module, "phi")):
        parts = [*residual.bias.grad.split(residual.sizes), *residual.phi.grad.split(residual.sizes)]
        names = ("b_pre", "b_post", "b_res", "phi_pre", "phi_post", "phi_res", "a_res")
        found = zip(names, (*parts, residual.alpha.grad[2]), strict=True)
        by_site.append({name: grad.abs().max().item() / largest for name, grad in found})
    return by_site


ROUNDING = 1e-13


@pytest.mark.parametrize("chosen", [{}, IDENTITY["mhc"], {"leave": "weighted"}, None], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_first_site_mixes_copies_and_never_learns_to(chosen, steps):
    """Its streams are equal whatever is learned: only parts of parameters are idle, so the docstring says it."""
    first, *_ = learning(chosen, steps)
    assert max(first[name] for name in ("b_res", "phi_res", "a_res")) < ROUNDING
    if steps == 0:
        assert min(first[name] for name in ("b_post", "phi_post")) > 1e-6
    assert max(first[name] for name in ("b_pre", "phi_pre")) < 1e-10  # their sum, which the norm behind takes out


def test_at_the_identity_start_no_site_mixes_before_the_first_step():
    """Temperature 1 or not. One step moves H_post of the streams apart, since sites read different ones."""
    for temperature in (1.0, 2.0):
        for site_ in learning({**IDENTITY["mhc"], "temperature": temperature}, 0):
            assert max(site_["b_res"], site_["phi_res"]) < ROUNDING
            assert site_["b_post"] > 1e-4
    _, *later = learning(IDENTITY["mhc"], 1)
    assert min(min(site_["b_res"], site_["phi_res"]) for site_ in later) > 1e-9


@pytest.mark.parametrize("leave", ["sum", "weighted"])
def test_at_the_uniform_start_sites_learn_to_mix_at_once(leave):
    """All but the first; and the last where the streams leave as a sum, for its columns sum to 1."""
    _, *later, last = learning({"leave": leave}, 0)
    assert min(site_["b_res"] for site_ in later) > 1e-10
    assert last["b_res"] > 1e-10 if leave == "weighted" else last["b_res"] < ROUNDING


def test_f12_only_a_start_without_gradient_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ManifoldHyperConnections(DIM, site(0), temperature=0.01)
        ManifoldHyperConnections(DIM, site(0), temperature=0.01, start="identity", streams=1)
        ManifoldHyperConnections(DIM, site(6), temperature=0.01, start="identity")  # the end mixes nothing
    with pytest.warns(UserWarning, match="mhc: at temperature 0.01"):
        model_of({"mhc": {"start": "identity", "temperature": 0.01}})


@pytest.mark.parametrize("residual", ["mhc", WEIGHTED, "hyper_connections", "attnres"], ids=str)
def test_f12_cross_attention_works_with_streams(residual):
    stacks = {"encoder": {"layers": 1}, "decoder": {"layers": 2}, "layers": None}
    fields = {name: value for name, value in {**PRE, **stacks}.items() if value is not None}
    model = explorer.build({**fields, "residual": residual}, device="cpu").eval()
    assert len(list(model.stack.parts())) == 6
    x, source = drawn(2, 5, DIM), drawn(2, 3, DIM, seed=1)
    out = model(x, source)
    assert out.shape == (2, 5, DIM)
    assert not torch.equal(model(x, source + drawn(2, 3, DIM, seed=2)), out)


def test_coefficients_are_float32_in_a_bfloat16_model():
    model = explorer.build({**PRE, "residual": WEIGHTED}, device="cpu", dtype="bfloat16").eval()
    for residual in residuals(model):
        assert {parameter.dtype for parameter in residual.parameters()} == {torch.float32}
    x = drawn(2, 5, DIM).bfloat16()
    first = next(residuals(model))
    assert {came.dtype for came in first.coefficients(first.enter(x))} == {torch.float32}
    assert model(x).dtype == torch.bfloat16
    assert model.to(torch.bfloat16)(x).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_change_of_dtype_does_not_round_the_parameters(dtype):
    model = model_of(WEIGHTED)
    before = [parameter.detach().clone() for residual in residuals(model) for parameter in moved(residual).parameters()]
    model.to(dtype)
    after = [parameter.data for residual in residuals(model) for parameter in residual.parameters()]
    assert len(before) == 6 * 3 + 3
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_float16_streams_beyond_the_root_of_its_largest_number():
    residual, X = ManifoldHyperConnections(DIM, site(0)), 300 * drawn(2, 5, 4, DIM).sign()
    for came, wanted in zip(residual.coefficients(X.half()), residual.coefficients(X), strict=True):
        torch.testing.assert_close(came, wanted)


def test_streams_live_from_the_embedding_to_the_end():
    """The state between layers has n different streams once the parameters have moved."""
    model, x = model_of("mhc"), drawn(2, 5, DIM)
    *sites, leave = (moved(residual) for residual in residuals(model))
    state = sites[0].enter(x)
    for residual, branch in zip(sites, branches(model), strict=True):
        h, state = residual.read(state)
        state = residual.write(state, branch(h))
        assert state.shape == (2, 5, 4, DIM)
        assert state.std(-2).min().item() > 1e-4
    torch.testing.assert_close(model.stack.final_norm(leave.leave(state)), model(x))


def test_a10_parameters():
    """n (n + 2) n d + n (n + 2) + 3 for each sublayer, n n d + n + 1 more where streams are weighted to leave."""
    assert added_params("mhc", dim=64, heads=4) == (12_342, 3 * 12_342)
    assert added_params("mhc", dim=4096) == (786_486, 3 * 786_486)  # 2 x 393,243: a layer of DeepSeek-V4-Flash
    assert added_params(WEIGHTED, dim=4096) == (786_486, 3 * 786_486 + 4 * 4 * 4096 + 4 + 1)
    n, d = 3, 64
    wanted = 2 * (n * (n + 2) * n * d + n * (n + 2) + 3)
    assert added_params({"mhc": {"streams": n}}, dim=d, heads=4) == (wanted, 3 * wanted)


@pytest.mark.parametrize("n", [2, 4])
def test_flops(n):
    """phi 2 n^2 (n + 2) d, H_pre 2 n d, H_res 2 n^2 d; H_post^T y is an outer product, element-wise. Train: 3 times."""
    site_flops = 2 * n * n * (n + 2) + 2 * n + 2 * n * n
    head = 2 * n * n + 2 * n
    chosen = {"mhc": {"streams": n}}
    assert flops_per_dim(chosen) == {"block": 2 * site_flops, "model": 6 * site_flops}
    weighted = {"mhc": {"streams": n, "leave": "weighted"}}
    assert flops_per_dim(weighted)["model"] == 6 * site_flops + head
    assert flops_per_dim(weighted, "train")["model"] == 3 * (6 * site_flops + head)


def test_a_site_of_four_streams_is_232_flops_per_channel():
    assert flops_per_dim("mhc")["block"] == 2 * 232
