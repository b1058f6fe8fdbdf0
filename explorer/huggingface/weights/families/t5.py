"""T5 and its kin: an encoder with a decoder, relative positions as a bias of the scores."""

from __future__ import annotations

from explorer.huggingface.weights.families.family import Family, Layers
from explorer.huggingface.weights.rules import Names, either, rows

# The table of a stack stands in its first layer.
_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"


def _attention(ours: str, theirs: str) -> Names:
    before, _, _ = theirs.rpartition(".")
    return {
        f"{ours}.norm": f"{before}.layer_norm",
        f"{ours}.branch.qkv": rows(*(f"{theirs}.{name}" for name in "qkv")),
        f"{ours}.branch.out": f"{theirs}.o",
    }


def _feedforward(theirs: str) -> Names:
    dense = f"{theirs}.DenseReluDense"
    return {
        "feedforward.norm": f"{theirs}.layer_norm",
        "feedforward.branch.up": either(f"{dense}.wi", rows(f"{dense}.wi_0", f"{dense}.wi_1")),  # gated since 1.1
        "feedforward.branch.down": f"{dense}.wo",
    }


_SELF = _attention("attention", "layer.0.SelfAttention")
_CROSS = _attention("cross_attention", "layer.1.EncDecAttention")

T5 = Family(
    "t5",
    {
        "embedding.table": either("shared", "encoder.embed_tokens", "decoder.embed_tokens"),
        "encoder.positions.*.table": f"encoder.{_BIAS}",
        "encoder.final_norm": "encoder.final_layer_norm",
        "stack.positions.*.table": f"decoder.{_BIAS}",
        "stack.final_norm": "decoder.final_layer_norm",
        "head.table": "lm_head",
    },
    {
        "encoder.layers": Layers("encoder.block", {**_SELF, **_feedforward("layer.1")}),
        "stack.layers": Layers("decoder.block", {**_SELF, **_CROSS, **_feedforward("layer.2")}),
    },
    copies=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
)
