"""Residuals whose state is the stream itself, against their formulas; what all residuals of the package declare."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import explorer
from explorer import RefusedError, Site
from explorer_residuals import register_residuals
from explorer_residuals.add import Add
from explorer_residuals.deepnorm import DeepNorm
from explorer_residuals.highway import Highway
from explorer_residuals.layerscale import LayerScale
from explorer_residuals.none import NoResidual
from explorer_residuals.rezero import ReZero
from explorer_residuals.scaled import Scaled
from explorer_residuals.skipinit import SkipInit

DIM = 16
BASE = {"dim": DIM, "heads": 4, "norm": "layernorm", "position": "none", "feedforward": {"dense": {"hidden": 24}}}


def drawn(seed, *shape):
    return torch.randn(shape or (2, 5, DIM), generator=torch.Generator().manual_seed(seed))


def site(total=8, layers=4):
    return Site(index=0, total=total, sublayer=0, sublayers=2, layer=0, layers=layers, decoder_layers=layers)


def moved(residual):
    """The residual with random parameters."""
    with torch.no_grad():
        for seed, parameter in enumerate(residual.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + 9)))
    return residual


def gate(residual, x):
    return 1 / (1 + torch.exp(-(x @ residual.gate.weight.T + residual.gate.bias)))


RESIDUALS = {  # ours, the same thing said another way, its number of parameters
    "add": (Add(), lambda r, x, y: x + y, 0),
    "none": (NoResidual(), lambda r, x, y: y, 0),
    "scaled": (Scaled(site(), value=0.3), lambda r, x, y: x + 0.3 * y, 0),
    "scaled by depth": (Scaled(site(9), by="depth", value=0.3), lambda r, x, y: x + 0.1 * y, 0),
    "rezero": (moved(ReZero()), lambda r, x, y: x + r.alpha.item() * y, 1),
    "skipinit": (moved(SkipInit()), lambda r, x, y: x + r.alpha.item() * y, 1),
    "layerscale": (moved(LayerScale(DIM)), lambda r, x, y: x + y @ torch.diag(r.scale), DIM),
    "highway": (moved(Highway(DIM)), lambda r, x, y: gate(r, x) * y + (1 - gate(r, x)) * x, DIM * DIM + DIM),
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_update_equals_its_formula(name):
    ours, formula, parameters = RESIDUALS[name]
    ours, x, y = ours.double(), drawn(0).double(), drawn(1).double()
    seen, state = ours.read(ours.enter(x))
    torch.testing.assert_close(seen, x, rtol=0, atol=0)
    torch.testing.assert_close(ours.leave(ours.write(state, y)), formula(ours, x, y))
    assert sum(parameter.numel() for parameter in ours.parameters()) == parameters


STARTS = {  # what a fresh one makes of x and y
    "rezero": (ReZero, lambda x, y: x),
    "skipinit": (SkipInit, lambda x, y: x),
    "skipinit elsewhere": (lambda: SkipInit(init=0.25), lambda x, y: x + 0.25 * y),
    "layerscale": (lambda: LayerScale(DIM), lambda x, y: x + 1e-4 * y),
    "layerscale elsewhere": (lambda: LayerScale(DIM, init=0.1), lambda x, y: x + 0.1 * y),
    "scaled": (lambda: Scaled(site()), lambda x, y: x + y),
    # 2 sites in each of 4 layers
    "scaled by depth": (lambda: Scaled(site(), by="depth"), lambda x, y: x + y / math.sqrt(8)),
}


@pytest.mark.parametrize("name", STARTS)
def test_start(name):
    make, formula = STARTS[name]
    x, y = drawn(0), drawn(1)
    torch.testing.assert_close(make().write(x, y), formula(x, y))


def test_highway_starts_by_passing_the_stream_on():
    highway = Highway(DIM, gate_bias=-3.0)
    torch.testing.assert_close(highway.gate.bias, torch.full((DIM,), -3.0))
    x, y = torch.zeros(2, 5, DIM), torch.ones(2, 5, DIM)
    torch.testing.assert_close(highway.write(x, y), torch.sigmoid(torch.full_like(x, -3.0)))


def test_scaled_by_depth_keeps_the_variance_of_the_stream():
    """The sum of N branches of unit variance, each over sqrt(N), has variance 1."""
    depth, x = 64, torch.zeros(10_000)
    scaled = Scaled(site(total=depth, layers=depth // 2), by="depth")
    for seed in range(depth):
        x = scaled.write(x, drawn(seed, 10_000))
    assert x.std().item() == pytest.approx(1, rel=0.05)  # 10000 draws: a standard error of 0.7 %


def test_scaled_by_depth_counts_the_sites_of_its_stack():
    def scale(**fields):
        fields = {"residual": {"scaled": {"by": "depth"}}, **BASE, **fields}
        return next(explorer.build(fields).stack.parts()).residual.scale

    assert scale(layers=3) == pytest.approx(6**-0.5)
    assert scale(layers=3, layout={"parallel": {"shared_norm": True}}) == pytest.approx(3**-0.5)
    assert scale(encoder={"layers": 2}, decoder={"layers": 4}) == pytest.approx(12**-0.5)
    with pytest.raises(RefusedError, match=r"scaled:by=depth.*it depends on the depth of the model: write `layers`"):
        scale()


def test_f10_a_silent_sublayer_leaves_the_stream_alone():
    x = drawn(0)
    for residual in (Add(), Scaled(site()), ReZero(), SkipInit(), LayerScale(DIM)):
        torch.testing.assert_close(residual.write(x, torch.zeros_like(x)), x, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["rezero", "skipinit", "layerscale", "highway"])
def test_bfloat16_stays_bfloat16(name):
    model = explorer.build({**BASE, "layers": 1, "residual": name}, device="cpu", dtype="bfloat16")
    assert model(drawn(0).bfloat16()).dtype == torch.bfloat16
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", sorted(register_residuals()))
def test_runs_under_autocast_near_float32(name):
    """Forward and backward; the stream itself stays float32, but where no stream passes the sublayers."""
    chosen = {"block_attnres": {"block_size": 1}}.get(name, {})
    placement = "post" if name == "deepnorm" else "pre"
    fields = {**BASE, "layers": 2, "placement": placement, "residual": {name: chosen}, "final_norm": "none"}
    model = explorer.build(fields, device="cpu")
    with torch.no_grad():
        for residual in (part.residual for part in model.stack.parts()):
            for seed, parameter in enumerate(residual.parameters()):
                parameter.add_(0.1 * drawn(seed, parameter.numel()).view(parameter.shape))
    outputs, gradients = [], []
    for on in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            outputs.append(model(drawn(0)))
        (outputs[-1] * drawn(1)).sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert outputs[1].dtype == (torch.bfloat16 if name == "none" else torch.float32)
    torch.testing.assert_close(outputs[1].float(), outputs[0], rtol=0.05, atol=0.05)
    for came, wanted in zip(*reversed(gradients), strict=True):
        assert came.dtype == torch.float32
        assert (came - wanted).norm() <= 0.05 * wanted.norm() + 0.05


def test_placements():
    places = {name: residual.placements for name, residual in register_residuals().items()}
    without_post = ("pre", "sandwich", "res_post", "none")
    assert places.pop("deepnorm") == DeepNorm.placements == ("post",)
    for name in ("hyper_connections", "mhc", "attnres", "block_attnres"):
        assert places.pop(name) == without_post
    assert set(places.values()) == {Add.placements}
    assert set(Add.placements) == {*without_post, "post"}


def test_initialisation_of_the_model_leaves_the_gate_of_a_highway_alone():
    fields = {**BASE, "layers": 1, "residual": "highway", "init": {"normal": {"std": 0.5}}}
    residual = next(explorer.build(fields, device="cpu").stack.parts()).residual
    assert isinstance(residual.gate, nn.Linear)
    torch.testing.assert_close(residual.gate.bias, torch.full((DIM,), -2.0))
    assert residual.gate.weight.abs().max().item() <= DIM**-0.5  # torch's own start, not N(0, 0.5^2)


def test_hook_lists_every_residual():
    assert sorted(register_residuals()) == [
        "add",
        "attnres",
        "block_attnres",
        "deepnorm",
        "highway",
        "hyper_connections",
        "layerscale",
        "mhc",
        "none",
        "rezero",
        "scaled",
        "skipinit",
    ]
