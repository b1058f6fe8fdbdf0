"""Weights of a toy Llama, written by hand: where they go, which names they may have, what may be left over.

Whole families are in tests/parity, against transformers.
"""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import explorer

DIM, HIDDEN, VOCAB = 16, 24, 11
BLUEPRINT = {
    "dim": DIM,
    "heads": 4,
    "vocab": VOCAB,
    "norm": "rmsnorm",
    "attention": {"gqa": {"kv_heads": 2}},
    "feedforward": {"dense": {"hidden": HIDDEN}},
    "layers": 2,
}
LAYER = {
    "input_layernorm.weight": (DIM,),
    "self_attn.q_proj.weight": (16, DIM),
    "self_attn.k_proj.weight": (8, DIM),
    "self_attn.v_proj.weight": (8, DIM),
    "self_attn.o_proj.weight": (DIM, 16),
    "post_attention_layernorm.weight": (DIM,),
    "mlp.gate_proj.weight": (HIDDEN, DIM),
    "mlp.up_proj.weight": (HIDDEN, DIM),
    "mlp.down_proj.weight": (DIM, HIDDEN),
}
MOE = {"moe": {"experts": 3, "top_k": 2, "hidden": HIDDEN, "router": "sigmoid", "selection_bias": True}}


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def llama(layers: int = 2, layer: Mapping[str, tuple[int, ...]] = LAYER) -> dict[str, Tensor]:
    inside = {f"model.layers.{i}.{name}": shape for i in range(layers) for name, shape in layer.items()}
    ends = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,), "lm_head.weight": (VOCAB, DIM)}
    return drawn({**ends, **inside})


def built(**changes):
    return explorer.build({**BLUEPRINT, **changes}, device="cpu")


def without_experts(layer: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in layer.items() if not name.startswith("mlp")}


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    torch.testing.assert_close(dict(found), dict(expected), rtol=0, atol=0)


def test_every_tensor_goes_to_its_place():
    model, theirs = built(), llama()
    report = explorer.load_weights(model, theirs)
    expected = {"embedding.table.weight": theirs["model.embed_tokens.weight"]}
    for i in range(2):
        norm, q, k, v, o, norm_2, gate, up, down = (theirs[f"model.layers.{i}.{name}"] for name in LAYER)
        expected |= {
            f"stack.layers.{i}.attention.norm.weight": norm,
            f"stack.layers.{i}.attention.branch.qkv.weight": torch.cat([q, k, v]),
            f"stack.layers.{i}.attention.branch.out.weight": o,
            f"stack.layers.{i}.feedforward.norm.weight": norm_2,
            f"stack.layers.{i}.feedforward.branch.up.weight": torch.cat([gate, up]),
            f"stack.layers.{i}.feedforward.branch.down.weight": down,
        }
    expected |= {"stack.final_norm.weight": theirs["model.norm.weight"], "head.table.weight": theirs["lm_head.weight"]}
    assert_same(model.state_dict(), expected)
    assert report.loaded == tuple(expected)
    assert (report.family, report.missing, report.unexpected, report.shapes, report.ignored) == (
        "llama",
        (),
        (),
        (),
        (),
    )
    assert str(report) == "names of llama: 15 tensors of the model fit"


@pytest.mark.parametrize("prefix", ["", "module.model.", "model.language_model.", "_orig_mod.language_model.model."])
def test_prefixes(prefix):
    theirs = {name.replace("model.", prefix, 1): tensor for name, tensor in llama().items()}
    model, other = built(), built()
    explorer.load_weights(model, theirs)
    explorer.load_weights(other, llama())
    assert_same(model.state_dict(), other.state_dict())


@pytest.mark.parametrize(
    "names",
    [
        ("block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight",
         "block_sparse_moe.experts.{}.w2.weight", "block_sparse_moe.gate"),
        ("mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight", "mlp.experts.{}.down_proj.weight",
         "mlp.gate"),
    ],
    ids=["mixtral", "qwen"],
)  # fmt: skip
def test_experts_one_by_one(names):
    gate, up, down, router = names
    each = {gate: (HIDDEN, DIM), up: (HIDDEN, DIM), down: (DIM, HIDDEN)}
    experts = {name.format(e): shape for e in range(3) for name, shape in each.items()}
    router_sizes = {f"{router}.weight": (3, DIM), f"{router}.e_score_correction_bias": (3,)}
    model, theirs = built(feedforward=MOE), llama(layer={**without_experts(LAYER), **experts, **router_sizes})
    explorer.load_weights(model, theirs)
    ours = model.stack.layers[1].feedforward.branch
    at = {name: torch.stack([theirs[f"model.layers.1.{name.format(e)}"] for e in range(3)]) for name in each}
    assert_same({"up": ours.experts.up}, {"up": torch.cat([at[gate], at[up]], dim=1)})
    assert_same({"down": ours.experts.down}, {"down": at[down]})
    bias = theirs[f"model.layers.1.{router}.e_score_correction_bias"]  # a buffer of ours
    assert_same({"bias": ours.router.choice.selection_bias}, {"bias": bias})


def test_one_block_takes_the_names_inside_a_layer():
    block = explorer.build(BLUEPRINT, scope="block", device="cpu")
    theirs = drawn(LAYER)
    report = explorer.load_weights(block, theirs)
    assert len(report.loaded) == 6
    assert_same({"out": block.block.attention.branch.out.weight}, {"out": theirs["self_attn.o_proj.weight"]})


@pytest.mark.parametrize(
    ("changes", "ignored"),
    [
        ({"head": "none"}, {"lm_head.weight"}),
        ({"vocab": None}, {"lm_head.weight", "model.embed_tokens.weight"}),
    ],
    ids=["head", "vocabulary"],
)
def test_a_model_without(changes, ignored):
    assert set(explorer.load_weights(built(**changes), llama()).ignored) == ignored


def test_heads_of_other_tasks():
    theirs = {**llama(), "score.weight": torch.ones(2, DIM)}
    assert "score.weight" in explorer.load_weights(built(head="none"), theirs).ignored
    assert explorer.load_weights(built(), theirs, strict=False).unexpected == ("score.weight",)


def test_gated_queries():
    """A projection as wide as two of our queries holds each head's gate behind it."""
    model = built(attention={"gqa": {"kv_heads": 2, "gate": True}})
    theirs = llama(layer={**LAYER, "self_attn.q_proj.weight": (32, DIM)})
    explorer.load_weights(model, theirs)
    q, k, v = (theirs[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv")
    heads = q.split(4)  # q, gate, q, gate ...
    expected = torch.cat([*heads[1::2], *heads[::2], k, v])
    assert_same({"qkv": model.stack.layers[1].attention.branch.qkv.weight}, {"qkv": expected})


def test_the_head_of_a_tied_model_may_be_there_or_not():
    theirs = llama()
    del theirs["lm_head.weight"]
    explorer.load_weights(built(tie_embeddings=True), theirs)
    same = {**theirs, "lm_head.weight": theirs["model.embed_tokens.weight"].double()}
    assert explorer.load_weights(built(tie_embeddings=True), same).ignored == ("lm_head.weight",)


@pytest.mark.parametrize(
    "leftover",
    [
        "model.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "model.layers.2.eh_proj.weight",  # with this one the whole layer
        "model.layers.2.mlp.down_proj.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "transformer.h.0.attn.bias",
        "h.0.attn.masked_bias",
        "gpt_neox.layers.0.attention.bias",
        "bert.embeddings.position_ids",
        "embeddings.token_type_ids",
        "cls.predictions.bias",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ],
)
def test_leftovers_are_no_errors(leftover):
    theirs = {**llama(), "model.layers.2.eh_proj.weight": torch.ones(1), leftover: torch.ones(1)}
    assert set(explorer.load_weights(built(), theirs).ignored) == {leftover, "model.layers.2.eh_proj.weight"}


@pytest.mark.parametrize(("theirs", "ours"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "float64")])
def test_values_take_the_dtype_of_the_model(theirs, ours):
    model = explorer.build(BLUEPRINT, device="cpu", dtype=getattr(torch, ours))
    weights = {name: tensor.to(getattr(torch, theirs)) for name, tensor in llama().items()}
    explorer.load_weights(model, weights)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {getattr(torch, ours)}
    assert_same({"": model.stack.final_norm.weight}, {"": weights["model.norm.weight"].to(getattr(torch, ours))})


class OneByOne(Mapping[str, Tensor]):
    """Gives a new tensor each time it is asked, and counts those that are alive."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors, self.alive, self.most = tensors, 0, 0

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name].clone()
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(tensor, self._gone)
        return tensor

    def _gone(self) -> None:
        self.alive -= 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def test_one_tensor_at_a_time():
    theirs, model = OneByOne(llama()), built()
    explorer.load_weights(model, theirs)
    # The one being looked at, and the next one when a loop takes it.
    assert theirs.most <= 2
    assert_same({"": model.head.table.weight}, {"": theirs.tensors["lm_head.weight"]})


def test_files_are_mapped_and_transformers_is_not_needed(tmp_path):
    save_file(llama(), tmp_path / "model.safetensors")
    script = f"""
import sys, explorer
from safetensors import safe_open
model = explorer.build({BLUEPRINT!r}, device="cpu")
with safe_open({str(tmp_path / "model.safetensors")!r}, "pt") as file:
    report = explorer.load_weights(model, {{name: file.get_tensor(name) for name in file.keys()}})
assert len(report.loaded) == 15 and "transformers" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
