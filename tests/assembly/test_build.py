"""Building: names, devices, dtypes, seeds, initial weights."""

import math

import pytest
import torch

import explorer
from explorer import BlueprintError, Residual
from explorer.assembly.build import build
from explorer.errors import UsageError


def test_a_blueprint_need_not_be_loaded_before(tmp_path):
    written = {"dim": 16, "heads": 4}
    path = tmp_path / "toy.yaml"
    path.write_text("dim: 16\nheads: 4\n")
    shapes = {n: t.shape for n, t in build(explorer.load(written)).state_dict().items()}
    for source in (written, path, str(path)):
        assert {n: t.shape for n, t in build(source).state_dict().items()} == shapes
    assert build("gpt2-small", "block").block is not None


@pytest.mark.parametrize("wrong", [3, None, ["dim"]])
def test_what_is_no_blueprint(wrong):
    with pytest.raises(BlueprintError, match=r"^a blueprint is a path, a published name or a mapping, not "):
        build(wrong)


def test_meta_and_cpu_have_the_same_shapes(load):
    blueprint = load(vocab=11, layers=2, encoder={}, bias=True)
    shapes = [{n: t.shape for n, t in build(blueprint, device=d).state_dict().items()} for d in ("meta", "cpu")]
    assert shapes[0] == shapes[1]
    assert all(parameter.is_meta for parameter in build(blueprint).parameters())


@pytest.mark.parametrize(("written", "dtype"), [(torch.bfloat16, torch.bfloat16), ("float64", torch.float64)])
def test_dtype_is_that_of_all_parameters_and_the_default_is_left(load, written, dtype):
    model = build(load(vocab=11), device="cpu", dtype=written)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert torch.get_default_dtype() == torch.float32
    assert model(torch.tensor([[1, 2]])).dtype == dtype


def test_a_dtype_that_cannot_compute_is_refused(load):
    with pytest.raises(UsageError, match=r"parameters cannot be float8_e4m3fn: use float64, float32, bfloat16"):
        build(load(vocab=11), device="cpu", dtype=torch.float8_e4m3fn)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(load, device):
    with pytest.raises(UsageError, match=f"device '{device}' cannot be used: "):
        build(load(vocab=11), device=device)


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({}, {"scope": "layer"}, "scope must be 'model' or 'block', not 'layer'"),
        ({}, {"name": "block"}, "name 'block' belongs to scope='block'"),
        ({}, {"scope": "block", "name": "blok"}, "no block is called 'blok'; there are block; did you mean 'block'"),
        ({"encoder": {}}, {"scope": "block"}, "several blocks; name one of encoder.block, decoder.block"),
    ],
)
def test_names_that_mean_nothing(load, fields, arguments, message):
    with pytest.raises(UsageError, match=message):
        build(load(**fields), **arguments)


def test_weights_come_from_the_seed_and_leave_the_callers_random_numbers(load):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same = (build(load(vocab=11, seed=1), device="cpu").state_dict() for _ in range(2))
    torch.testing.assert_close(torch.rand(3), expected)
    torch.testing.assert_close(one, same, rtol=0, atol=0)
    other = build(load(vocab=11, seed=2), device="cpu").state_dict()
    assert not torch.equal(one["embedding.table.weight"], other["embedding.table.weight"])


WIDE = {"dim": 64, "vocab": 500, "layers": 8, "bias": True, "feedforward": {"dense": {"hidden": 256}}}


def outputs(model):
    return [part.branch.branch_weights()["output"][0] for part in model.stack.parts()]


@pytest.mark.parametrize(("output", "by_depth"), [("none", 1.0), ("depth", 1 / math.sqrt(2 * 8))])
def test_normal_init(load, output, by_depth):
    model = build(load(**WIDE, init={"normal": {"std": 0.05, "output": output}}), device="cpu")
    torch.testing.assert_close(model.embedding.table.weight.std().item(), 0.05, rtol=0.02, atol=0)
    part = model.stack.layers[3].feedforward.branch
    torch.testing.assert_close(part.up.weight.std().item(), 0.05, rtol=0.02, atol=0)
    assert part.up.bias.count_nonzero() == part.down.bias.count_nonzero() == 0
    for weight in outputs(model):
        torch.testing.assert_close(weight.std().item(), 0.05 * by_depth, rtol=0.05, atol=0)
    torch.testing.assert_close(model.stack.final_norm.weight, torch.nn.Parameter(torch.ones(64)))


def test_xavier_init(load):
    model = build(load(**WIDE, init="xavier"), device="cpu")
    up = model.stack.layers[0].feedforward.branch.up.weight
    limit = math.sqrt(6 / (64 + 256))
    assert 0.98 * limit < up.abs().max() <= limit
    assert model.stack.layers[0].attention.branch.out.bias.count_nonzero() == 0


class Quiet(Residual):
    """x + y with the sublayer's output weights at zero, and a map that starts at one."""

    def __init__(self, dim):
        super().__init__()
        self.own = torch.nn.Linear(dim, dim)
        torch.nn.init.ones_(self.own.weight)

    def write(self, state, y):
        return state + y

    def init_branch(self, weights):
        for weight in weights["output"]:
            torch.nn.init.zeros_(weight)


@pytest.mark.parametrize("layout", ["sequential", "parallel"])
def test_a_residual_has_the_last_word_on_its_branches_and_on_itself(load, layout):
    blueprint = load({"residual": {"quiet": Quiet}}, residual="quiet", layout=layout, layers=2, init="xavier")
    model = build(blueprint, device="cpu")
    for part in model.stack.parts():
        for branch in part.branches:
            assert branch.branch_weights()["output"][0].count_nonzero() == 0
        torch.testing.assert_close(part.residual.own.weight, torch.nn.Parameter(torch.ones(16, 16)))


def test_deepnorm_scales_value_output_and_feedforward_weights_only(load):
    """Xavier-normal std: beta sqrt(2 / (rows + columns)), beta = (8 N)^(-1/4); queries and keys keep what they have."""
    fields = {**WIDE, "residual": "deepnorm", "placement": "post", "init": "xavier"}
    part = build(load(**fields), device="cpu").stack.layers[2]
    beta = (8 * 8) ** -0.25
    named = part.feedforward.branch.branch_weights()
    for weight in (*part.attention.branch.branch_weights()["value"], *named["input"], *named["output"]):
        std = beta * math.sqrt(2 / sum(weight.shape))
        torch.testing.assert_close(weight.std().item(), std, rtol=0.05, atol=0)
    queries = part.attention.branch.qkv.weight[:64]
    torch.testing.assert_close(queries.std().item(), math.sqrt(2 / (64 + 3 * 64)), rtol=0.05, atol=0)


def test_state_dict_names(load):
    model = build(
        load(vocab=11, encoder={}, blocks={"wide": {"layout": "parallel"}}, decoder={"cross_attention": "none"})
    )
    names = set(model.state_dict())
    assert {
        "embedding.table.weight",
        "encoder.layers.0.attention.norm.weight",
        "stack.layers.0.attention.branch.out.weight",
        "stack.layers.0.feedforward.branch.down.weight",
        "stack.final_norm.weight",
        "head.table.weight",
    } <= names
