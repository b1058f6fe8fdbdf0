"""A state dict that does not fit: what is said, and that nothing was loaded."""

from __future__ import annotations

import pytest
import torch

import explorer
from explorer.huggingface.weights.report import Mismatch, Missing, Report, WeightsError
from tests.huggingface.test_weights import BLUEPRINT, DIM, HIDDEN, LAYER, MOE, VOCAB, built, drawn, llama

QK_NORM = {"self_attn.q_norm.weight": (4,), "self_attn.k_norm.weight": (4,)}
QKV = "stack.layers.{}.attention.branch.qkv.weight"
NORMED = {"gqa": {"kv_heads": 2, "qk_norm": "rmsnorm"}}


def refused(model, theirs) -> Report:
    """The report, after a look at the model: it must be untouched."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(WeightsError) as error:
        explorer.load_weights(model, theirs)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert isinstance(error.value, explorer.UsageError)
    assert str(error.value.report) in str(error.value)
    return error.value.report


def test_other_heads():
    report = refused(built(attention={"gqa": {"kv_heads": 4}}), llama())
    theirs = {
        f"model.layers.0.self_attn.{name}_proj.weight": (rows, DIM)
        for name, rows in zip("qkv", (16, 8, 8), strict=True)
    }
    assert report.shapes[0] == Mismatch(QKV.format(0), (48, DIM), theirs, "theirs make (32, 16)")
    assert [mismatch.ours for mismatch in report.shapes] == [QKV.format(0), QKV.format(1)]
    assert (report.missing, report.unexpected) == ((), ())
    assert str(report) == (
        "names of llama: 13 tensors of the model fit\n"
        "not fitting, tensors of the model that theirs do not fit (2):\n"
        "  stack.layers.*.attention.branch.qkv.weight (48, 16): theirs make (32, 16), "
        "from model.layers.*.self_attn.q_proj.weight (16, 16), model.layers.*.self_attn.k_proj.weight (8, 16), "
        "model.layers.*.self_attn.v_proj.weight (8, 16) (2 of these)"
    )


def test_a_norm_that_the_blueprint_lacks():
    report = refused(built(), llama(layer={**LAYER, **QK_NORM}))
    assert report.unexpected == tuple(f"model.layers.{i}.{name}" for i in range(2) for name in QK_NORM)
    assert "  model.layers.*.self_attn.q_norm.weight (2 of these)" in str(report).splitlines()


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_a_norm_that_the_state_dict_lacks(prefix):
    report = refused(built(attention=NORMED), {name.replace("model.", prefix): t for name, t in llama().items()})
    name = "stack.layers.1.attention.branch.q_norm.weight"
    assert Missing(name, (f"{prefix}layers.1.self_attn.q_norm.weight",)) in report.missing
    assert len(report.missing) == 4
    line = "  stack.layers.*.attention.branch.k_norm.weight: no {}layers.*.self_attn.k_norm.weight (2 of these)"
    assert line.format(prefix) in str(report).splitlines()


@pytest.mark.parametrize(
    ("changes", "missing", "unexpected", "shapes"),
    [
        ({"vocab": 12}, 0, 0, 2),
        ({"layers": 3}, 6, 0, 0),
        ({"layers": 1}, 0, len(LAYER), 0),
        ({"dim": 32, "heads": 8}, 0, 0, 15),
        ({"tie_embeddings": True}, 0, 0, 1),
        ({"bias": True}, 4 * 2, 0, 0),
        ({"norm": "layernorm"}, 5, 0, 0),
        ({"residual": "rezero"}, 4, 0, 0),
        ({"placement": "sandwich"}, 4, 0, 0),
        ({"feedforward": MOE}, 4 * 2, 3 * 2, 0),
        ({"attention": {"mla": {"kv_rank": 6, "rope_dim": 4, "nope_dim": 4}}}, 3 * 2, 2 * 2, 0),
    ],
    ids=str,
)  # fmt: skip
def test_other_blueprints(changes, missing, unexpected, shapes):
    report = refused(built(**changes), llama())
    assert (len(report.missing), len(report.unexpected), len(report.shapes)) == (missing, unexpected, shapes)
    assert report.problems == missing + unexpected + shapes


def test_a_part_of_a_fused_projection_is_missing():
    theirs = llama()
    del theirs["model.layers.1.self_attn.k_proj.weight"]
    report = refused(built(), theirs)
    assert report.missing == (Missing(QKV.format(1), ("model.layers.1.self_attn.k_proj.weight",)),)
    assert not report.unexpected, "q and v wait for it"


def test_an_untied_head():
    report = refused(built(tie_embeddings=True), llama())
    (mismatch,) = report.shapes
    assert mismatch.ours == "embedding.table.weight"
    assert "lm_head.weight has other values than model.embed_tokens.weight" in mismatch.reason


def test_a_head_that_is_tied_only_there():
    theirs = llama()
    del theirs["lm_head.weight"]
    assert refused(built(), theirs).missing == (Missing("head.table.weight", ("lm_head.weight",)),)


def test_two_names_for_one_tensor():
    assert refused(built(), {**llama(), "norm.weight": torch.ones(DIM)}).unexpected == ("norm.weight",)


@pytest.mark.parametrize("experts", [2, 4])
def test_another_number_of_experts(experts):
    each = {"gate_proj": (HIDDEN, DIM), "up_proj": (HIDDEN, DIM), "down_proj": (DIM, HIDDEN)}
    theirs = {f"mlp.experts.{e}.{name}.weight": shape for e in range(3) for name, shape in each.items()}
    layer = {name: shape for name, shape in LAYER.items() if not name.startswith("mlp")}
    theirs = llama(layer={**layer, **theirs, "mlp.gate.weight": (3, DIM)})
    report = refused(built(feedforward={"moe": {"experts": experts, "top_k": 2, "hidden": HIDDEN}}), theirs)
    assert len(report.shapes) == 2, "the routers"
    absent = {name for missing in report.missing for name in missing.theirs}
    about = absent if experts == 4 else set(report.unexpected)
    number = 3 if experts == 4 else 2
    assert about == {f"model.layers.{i}.mlp.experts.{number}.{name}.weight" for i in range(2) for name in each}


def test_a_layout_that_needs_what_the_attention_has_not():
    layer = {
        "input_layernorm.weight": (DIM,),
        "input_layernorm.bias": (DIM,),
        "attention.query_key_value.weight": (48, DIM),
        "attention.dense.weight": (DIM, 16),
    }
    theirs = drawn({f"gpt_neox.layers.0.{name}": shape for name, shape in layer.items()})
    theirs |= drawn({"gpt_neox.embed_in.weight": (VOCAB, DIM)})
    report = refused(built(norm="layernorm", attention="differential", layers=1), theirs)
    reason = "theirs do not fit the layout (needs `kv_width`, which the model's DifferentialAttention does not have)"
    assert [mismatch.reason for mismatch in report.shapes] == [reason]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.int32])
def test_quantised_weights(dtype):
    name = "model.layers.1.mlp.down_proj.weight"
    theirs = {**llama(), name: llama()[name].to(dtype)}
    (mismatch,) = refused(built(), theirs).shapes
    assert mismatch.reason == f"{dtype} are no torch.float32 (quantised weights must be dequantised first)"


def test_gated_queries_for_a_model_without_gate():
    report = refused(built(), llama(layer={**LAYER, "self_attn.q_proj.weight": (32, DIM)}))
    assert [(mismatch.ours, mismatch.reason) for mismatch in report.shapes] == [
        (QKV.format(i), "theirs make (48, 16)") for i in range(2)
    ]


def test_many_names_are_cut():
    layer = {name: shape for name, shape in LAYER.items() if not name.startswith("mlp")}
    theirs = llama(layer={**layer, "mlp.experts.0.down_proj.weight": (DIM, HIDDEN)})
    report = refused(built(feedforward={"moe": {"experts": 8, "top_k": 2, "hidden": HIDDEN}}), theirs)
    line = next(line for line in str(report).splitlines() if "experts.down" in line)
    assert line.count("down_proj") == 4
    assert line.endswith("and 3 more (2 of these)")


def test_long_reports_are_cut():
    theirs = {**llama(), **{f"extra_{letter}": torch.ones(1) for letter in "abcdefghijklmnop"}}
    lines = str(refused(built(), theirs)).splitlines()
    assert lines[-1] == "  and 4 more kinds"
    assert len(lines) == 2 + 12 + 1


def test_what_fits_is_loaded_where_not_all_must():
    model, theirs = built(vocab=12), {**llama(), "extra": torch.ones(1)}
    before = model.embedding.table.weight.clone()
    report = explorer.load_weights(model, theirs, strict=False)
    assert {mismatch.ours for mismatch in report.shapes} == {"embedding.table.weight", "head.table.weight"}
    assert report.unexpected == ("extra",)
    assert set(report.loaded) == model.state_dict().keys() - {"embedding.table.weight", "head.table.weight"}
    torch.testing.assert_close(model.stack.final_norm.weight.detach(), theirs["model.norm.weight"], rtol=0, atol=0)
    torch.testing.assert_close(model.embedding.table.weight, before, rtol=0, atol=0)


META = {name: tensor.to("meta") for name, tensor in llama().items()}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({"blocks.0.attn.qkv.weight": torch.ones(1)}, "no tensor .* a known family .*it has blocks.0.attn.qkv"),
        ({}, "it has none at all"),
        ([1], "a mapping from names to tensors, not list"),
        ({"step": 3}, "its 'step' is of type int"),
        ({"model": llama()}, r"its 'model' is of type dict \(is the state dict inside it\?\)"),
        (META, "'model.embed_tokens.weight' of the state dict is on device meta"),
    ],
    ids=["unknown", "empty", "list", "number", "nested", "meta"],
)  # fmt: skip
def test_no_state_dict(theirs, message):
    with pytest.raises(explorer.UsageError, match=message):
        explorer.load_weights(built(), theirs)


def test_no_model():
    with pytest.raises(explorer.UsageError, match=r"into what explorer\.build makes, not into Linear"):
        explorer.load_weights(torch.nn.Linear(2, 2), llama())
    with pytest.raises(
        explorer.UsageError, match="on device meta has no memory for weights: build it with device='cpu'"
    ):
        explorer.load_weights(explorer.build(BLUEPRINT), llama())


def test_no_source():
    with pytest.raises(explorer.UsageError, match="source must be one of hf, not 'meta'"):
        explorer.load_weights(built(), llama(), source="meta")
