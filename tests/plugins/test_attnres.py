"""Attention residuals, full and in blocks, against the paper's formula and pseudo-code in float64."""

from __future__ import annotations

import pytest
import torch

import explorer
from explorer.assembly.build import build_model
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.ledger.trace import Trace
from explorer_residuals.aggregate import Aggregate
from explorer_residuals.attnres import AttnRes
from explorer_residuals.block_attnres import BlockAttnRes
from tests.plugins.residual_stacks import (
    DIM,
    LAYERS,
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

DEEP = 9  # layers: 19 sources, more than one round of joining groups


def blocks_of(size, **more):
    return {"block_attnres": {"block_size": size, **more}}


def mixed(sources, residual):
    """sum_i a_i v_i, a = softmax(w . RMSNorm(v_i)), with the gain on the keys."""
    query, gain = residual.aggregate.query, residual.aggregate.key_gain
    scores = []
    for v in sources:
        key = v if gain is None else gain * v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-6)
        scores.append((key * query).sum(-1))
    weights = torch.exp(torch.stack(scores))
    weights = weights / weights.sum(0)
    return sum(a[..., None] * v for a, v in zip(weights, sources, strict=True))


def attended(model, x):
    """h_l = sum over the embedding and all earlier outputs; the same once more at the end."""
    *sites, leave = residuals(model)
    sources = [x]
    for residual, branch in zip(sites, branches(model), strict=True):
        sources.append(branch(mixed(sources, residual)))
    return model.stack.final_norm(mixed(sources, leave))


def attended_in_blocks(model, x, block_size, sublayers=2):
    """The pseudo-code of the paper, for layers of any number of sublayers."""
    *sites, leave = residuals(model)
    calls = list(zip(sites, branches(model), strict=True))
    blocks, partial = [], x
    for layer in range(len(calls) // sublayers):
        first, *others = calls[layer * sublayers : (layer + 1) * sublayers]
        residual, branch = first
        h = mixed([*blocks, partial], residual) if blocks else partial
        if layer % block_size == 0:
            blocks.append(partial)
            partial = None
        y = branch(h)
        partial = y if partial is None else partial + y
        for residual, branch in others:
            partial = partial + branch(mixed([*blocks, partial], residual))
    return model.stack.final_norm(mixed([*blocks, partial], leave))


@pytest.mark.parametrize("layers", [LAYERS, DEEP])
@pytest.mark.parametrize("key_norm", [True, False])
def test_full_stack_equals_the_formula(key_norm, layers):
    model = random_model({"attnres": {"key_norm": key_norm}}, layers=layers)
    x = drawn(2, 5, DIM).double()
    torch.testing.assert_close(model(x), attended(model, x))


@pytest.mark.parametrize("key_norm", [True, False])
@pytest.mark.parametrize(("layers", "block_size"), [(3, 1), (3, 2), (3, 3), (3, 7), (7, 3)])
def test_block_stack_equals_the_pseudo_code(layers, block_size, key_norm):
    model = random_model(blocks_of(block_size, key_norm=key_norm), layers=layers)
    x = drawn(2, 5, DIM).double()
    torch.testing.assert_close(model(x), attended_in_blocks(model, x, block_size))


def test_gradients_of_a_stack_equal_those_of_the_formula():
    """In-place sums and joined groups leave what backward needs alone."""
    for residual, reference in (
        ({"attnres": {}}, attended),
        (blocks_of(2), lambda model, x: attended_in_blocks(model, x, 2)),
    ):
        model = random_model(residual, layers=DEEP)
        x = drawn(2, 5, DIM).double().requires_grad_()
        parameters = [x, *model.parameters()]
        weights = drawn(2, 5, DIM, seed=1).double()
        ours, wanted = (
            torch.autograd.grad((run(x) * weights).sum(), parameters, allow_unused=True, materialize_grads=True)
            for run in (model, lambda x, run=reference, model=model: run(model, x))
        )
        for came, expected in zip(ours, wanted, strict=True):
            torch.testing.assert_close(came, expected)


def test_parallel_layout_has_one_site_a_layer():
    """Blocks are counted in layers there too."""
    layout = {"parallel": {"shared_norm": True}}
    model = random_model(blocks_of(2), layers=5, layout=layout)
    assert len(list(model.stack.parts())) == 5
    x = drawn(2, 5, DIM).double()

    def branch(part):
        first, second = part.branches
        return lambda x: first(part.norm(x)) + second(part.norm(x))

    *sites, leave = residuals(model)
    blocks, partial = [], x
    for layer, (residual, part) in enumerate(zip(sites, model.stack.parts(), strict=True)):
        h = mixed([*blocks, partial], residual) if blocks else partial
        if layer % 2 == 0:
            blocks.append(partial)
            partial = None
        y = branch(part)(h)
        partial = y if partial is None else partial + y
    wanted = model.stack.final_norm(mixed([*blocks, partial], leave))
    torch.testing.assert_close(model(x), wanted)


def test_a_layer_of_one_sublayer_counts_as_a_layer():
    model = random_model(blocks_of(2), layers=5, attention="none")
    x = drawn(2, 5, DIM).double()
    torch.testing.assert_close(model(x), attended_in_blocks(model, x, 2, sublayers=1))


def test_a_boundary_at_an_empty_layer_is_not_lost():
    """Layer 2 has no sublayers: the block it would open is opened by layer 3."""
    empty = {"attention": "none", "feedforward": "none"}
    fields = {"blocks": {"full": {}, "empty": empty}, "layers": ["full", "full", "empty", "full"]}
    model = model_of(blocks_of(2), **fields)
    *sites, leave = residuals(model)
    state = sites[0].enter(drawn(2, 5, DIM))
    kept = []
    for residual, branch in zip(sites, branches(model), strict=True):
        h, state = residual.read(state)
        state = residual.write(state, branch(h))
        kept.append(state.done.shape[-2])
    assert kept == [1, 1, 1, 1, 2, 2]
    assert leave.leave(state).shape == (2, 5, DIM)


def test_start_is_the_mean_of_the_sources():
    """Not their sum, as a plain residual makes."""
    *sites, leave = residuals(model_of("attnres", layers=DEEP))
    sources = [drawn(2, 5, DIM, seed=seed) for seed in range(len(sites) + 1)]
    state = sites[0].enter(sources[0])
    for index, residual in enumerate(sites):
        h, state = residual.read(state)
        torch.testing.assert_close(h, torch.stack(sources[: index + 1]).mean(0))
        state = residual.write(state, sources[index + 1])
    torch.testing.assert_close(leave.leave(state), torch.stack(sources).mean(0))


def test_start_of_blocks_is_the_mean_of_their_sums():
    *sites, leave = residuals(model_of(blocks_of(1)))
    v = [drawn(2, 5, DIM, seed=seed) for seed in range(len(sites) + 1)]
    sums = [v[0], v[1] + v[2], v[3] + v[4], v[5] + v[6]]
    wanted = [sums[:1], [v[0], v[1]], sums[:2], [*sums[:2], v[3]], sums[:3], [*sums[:3], v[5]]]
    state = sites[0].enter(v[0])
    for residual, y, sources in zip(sites, v[1:], wanted, strict=True):
        h, state = residual.read(state)
        torch.testing.assert_close(h, torch.stack(sources).mean(0))
        state = residual.write(state, y)
    torch.testing.assert_close(leave.leave(state), torch.stack(sums).mean(0))


def test_one_block_acts_on_the_embedding_and_the_plain_sum():
    """Where all layers are in one block the stream is the plain residual's without the embedding."""
    *sites, _ = residuals(model_of(blocks_of(LAYERS)))
    v = [drawn(2, 5, DIM, seed=seed) for seed in range(len(sites) + 1)]
    state = sites[0].enter(v[0])
    for residual, y in zip(sites, v[1:], strict=True):
        state = residual.write(residual.read(state)[1], y)
    torch.testing.assert_close(state.done, v[0].unsqueeze(-2))
    torch.testing.assert_close(state.partial, torch.stack(v[1:]).sum(0))


def test_the_gain_of_the_keys_folds_into_the_query():
    """Kimi K3: w . (g * v / rms) = (w * g) . v / rms."""
    ours, folded = (Aggregate(DIM, key_norm=True, eps=1e-6) for _ in range(2))
    moved(ours)
    with torch.no_grad():
        folded.query.copy_(ours.query * ours.key_gain)
    v = drawn(2, 5, 6, DIM)
    scales = torch.cat([ours.scale(source) for source in v.unbind(-2)], dim=-1)
    torch.testing.assert_close(ours((v,), scales), folded((v,), scales))


def test_grouping_does_not_matter():
    ours = moved(Aggregate(DIM, key_norm=True, eps=1e-6))
    v = drawn(2, 5, 6, DIM)
    scales = torch.cat([ours.scale(source) for source in v.unbind(-2)], dim=-1)
    torch.testing.assert_close(ours(v.split([3, 1, 2], dim=-2), scales), ours((v,), scales))


def test_few_groups_and_few_copies():
    """Of S sources a site reads at most 3 log_4(S) + 3 groups; what is stored for backward grows as S log S."""
    residual = AttnRes(DIM, site(0))
    state, copied = residual.enter(drawn(1, 1, DIM)), 0
    for count_ in range(2, 257):
        before = state.groups
        state = residual.write(state, drawn(1, 1, DIM))
        new = [group for group in state.groups if all(group is not old for old in before)]
        copied += sum(group.shape[-2] for group in new if group.shape[-2] > 1)
        assert sum(group.shape[-2] for group in state.groups) == count_ == state.scales.shape[-1]
        assert len(state.groups) <= 12
    assert copied <= 256 * 4


@pytest.mark.parametrize("residual", ["attnres", blocks_of(1)], ids=str)
def test_the_first_site_is_idle_and_says_so(residual):
    """One source has weight 1 whatever the query, so no gradient reaches it."""
    model = model_of(residual)
    (model(drawn(2, 5, DIM)) * drawn(2, 5, DIM, seed=1)).sum().backward()
    for index, module in enumerate(residuals(model)):
        grads = [parameter.grad for parameter in module.aggregate.parameters()]
        assert list(module.idle_parameters) == (["aggregate"] if index == 0 else [])
        if index == 0:
            assert all(grad is None or not grad.any() for grad in grads)
        else:
            assert module.aggregate.query.grad.any()


def test_query_starts_at_zero_and_gain_at_one():
    for residual in (AttnRes(DIM, site(3)), BlockAttnRes(DIM, site(3), block_size=2)):
        torch.testing.assert_close(residual.aggregate.query, torch.zeros(DIM), rtol=0, atol=0)
        torch.testing.assert_close(residual.aggregate.key_gain, torch.ones(DIM), rtol=0, atol=0)
    assert AttnRes(DIM, site(3), key_norm=False).aggregate.key_gain is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("key_norm", [True, False])
@pytest.mark.parametrize("residual", ["attnres", "block_attnres"])
def test_half_precision_rounds_once(residual, key_norm, dtype):
    """Sources of size 300, whose squares float16 does not hold: scores, softmax and sums in float32, then one cast."""
    chosen = {residual: {"key_norm": key_norm, **({"block_size": 2} if residual == "block_attnres" else {})}}
    half, exact = (explorer.build({**PRE, "layers": DEEP, "residual": chosen}, device="cpu") for _ in range(2))
    half, exact = [moved(module) for module in residuals(half)], list(residuals(exact.double()))
    for ours, theirs in zip(half, exact, strict=True):
        if not key_norm:
            ours.aggregate.query.data /= 1024  # scores of some units
        theirs.load_state_dict(ours.to(dtype).state_dict())
    y = [(300 * drawn(8, 16, DIM, seed=seed)).to(dtype) for seed in range(len(half))]
    state, wide = half[0].enter(y[0]), exact[0].enter(y[0].double())
    for ours, theirs, source in zip(half, exact, y[1:], strict=False):
        (h, state), (wanted, wide) = ours.read(state), theirs.read(wide)
        expect_one_rounding(h, wanted, dtype)
        state, wide = ours.write(state, source), theirs.write(wide, source.double())
    expect_one_rounding(half[-1].leave(state), exact[-1].leave(wide), dtype)


def expect_one_rounding(came, wanted, dtype):
    assert came.dtype == dtype
    torch.testing.assert_close(came, wanted.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-2)  # a step to either side
    errors = [(x.double() - wanted).abs().mean().item() for x in (came, wanted.to(dtype))]
    assert errors[0] <= 1.01 * errors[1]


def test_parameters():
    """A query for each site and one to leave, as many again for the gains: 4 d a layer and 2 d, as in Kimi K3."""
    d = 4096
    assert added_params("attnres") == (4 * d, LAYERS * 4 * d + 2 * d)
    assert added_params(blocks_of(12)) == (4 * d, LAYERS * 4 * d + 2 * d)
    assert added_params({"attnres": {"key_norm": False}}) == (2 * d, LAYERS * 2 * d + d)
    assert added_params(blocks_of(12, key_norm=False)) == (2 * d, LAYERS * 2 * d + d)


@pytest.mark.parametrize("layers", [1, 4])
def test_flops(layers):
    """4 S d for S sources: 4 d L (2 L + 1) over all sites of L layers, and once more to leave. Train: three times."""
    S = 2 * layers
    wanted = {"block": 4 * (S - 1) + 4 * S, "model": 4 * layers * (2 * layers + 1) + 4 * (S + 1)}
    assert flops_per_dim("attnres", layers=layers) == wanted
    assert flops_per_dim("attnres", "train", layers=layers)["model"] == 3 * wanted["model"]


def test_flops_of_blocks():
    """Sources: the finished sums and the open one. The first site reads the embedding alone."""
    #          layer 0   1       2       3       4
    sources = [1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
    wanted = {"block": 4 * (3 + 4), "model": 4 * sum(sources) + 4 * 4}
    assert flops_per_dim(blocks_of(2), layers=5) == wanted
    assert flops_per_dim(blocks_of(2), "train", layers=5)["model"] == 3 * wanted["model"]


@pytest.mark.parametrize("residual", ["attnres", blocks_of(2), "mhc", "hyper_connections"], ids=str)
@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_sum_over_layers_equals_the_whole_model(residual, phase):
    plan = explorer.load({**PRE, "layers": 5, "residual": residual}).plan()
    *_, cost = count(plan, [Workload(phase, 2, 6, dtype="float32")]).costs
    model = build_model(plan, device="meta", dtype=torch.float32).train(phase == "train")
    with torch.set_grad_enabled(phase == "train"), Trace() as trace:
        out = model(torch.zeros(2, 6, DIM, device="meta", requires_grad=phase == "train"))
        if phase == "train":
            out.backward(torch.empty_like(out))
    assert cost.matmul_flops == trace.totals().matmul_flops
    assert cost.incomplete == ()
