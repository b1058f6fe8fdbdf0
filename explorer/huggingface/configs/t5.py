"""T5 and T5 v1.1: an encoder and a decoder with RMSNorm, relative positions as a bias and unscaled scores."""

from __future__ import annotations

from explorer.huggingface.activations import GATED, PLAIN
from explorer.huggingface.components import Fields, component, dropout
from explorer.huggingface.reader import ConfigReader, shown
from explorer.huggingface.sizes import MOST_LAYERS, Names, read_sizes

NAMES = Names(
    dim=("d_model", "hidden_size"),
    layers=("num_layers", "num_hidden_layers"),
    heads=("num_heads", "num_attention_heads"),
    head_dim=("d_kv", "head_dim"),
)
RENAMED = {"gated-gelu": "gelu_new"}  # what the exact GELU means behind a gate


def t5(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=32128, dim=512, layers=6, heads=8, head_dim=64, names=NAMES)
    config.only("is_encoder_decoder", True)
    config.ignore("n_positions")
    tied = config.flag("tie_word_embeddings", default=True)
    scaled = config.flag("scale_decoder_outputs", default=tied)
    if not tied:
        config.remark("the head has a table of its own, as released; transformers 5 ties the two all the same")
    rate = config.rate("dropout_rate", default=0.1)
    if rate:
        config.comment("dropout", "T5 also drops after the final norms, which no field here does")
    position = component(
        "t5_bias",
        buckets=config.whole("relative_attention_num_buckets", default=32),
        max_distance=config.whole("relative_attention_max_distance", default=128),
    )
    decoder_layers = config.optional_whole("num_decoder_layers") or sizes.layers
    if decoder_layers > MOST_LAYERS:
        config.problem("num_decoder_layers", f"must be at most {MOST_LAYERS:,}")
    return {
        **sizes.fields(),
        "norm": component("rmsnorm", eps=config.number("layer_norm_epsilon", default=1e-6)),
        "position": position,
        "attention": sizes.attention(scale=1),
        "feedforward": component("dense", hidden=config.whole("d_ff", default=2048)),
        "activation": _activation(config),
        "dropout": dropout(embedding=rate, attention=rate, activation=rate, sublayer=rate),
        "encoder": {"layers": sizes.layers},
        "decoder": {"layers": decoder_layers},
        "head": component("lm", scale="rsqrt_dim" if scaled else None),
        "tie_embeddings": tied,
    }


def _activation(config: ConfigReader) -> str:
    """Of `relu` or `gated-gelu` and the like; two other fields may repeat it."""
    name = "feed_forward_proj"
    written = config.text(name, default="relu")
    gate, _, function = written.rpartition("-")
    known = GATED if gate else PLAIN
    function = RENAMED.get(written, function)
    config.derived("dense_act_fn", function)
    config.derived("is_gated_act", bool(gate))
    if gate not in ("", "gated") or function not in known:
        gated = ", ".join(f"gated-{function}" for function in GATED)
        config.problem(name, f"{shown(written)} is not supported", f"known: {', '.join(PLAIN)}, {gated}")
        return "relu"
    return known[function]
