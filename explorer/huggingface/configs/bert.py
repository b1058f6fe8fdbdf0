"""BERT: post-norm layers that see all tokens, learned positions and token types."""

from __future__ import annotations

from explorer.huggingface.activations import plain
from explorer.huggingface.components import Fields, component, dropout
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import read_sizes


def bert(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=30522, dim=768, layers=12, heads=12)
    config.only("is_decoder", False)
    config.only("add_cross_attention", False)
    config.only("position_embedding_type", "absolute")
    config.only("directionality", "bidi")
    config.ignore("tie_word_embeddings", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers")
    config.ignore("pooler_size_per_head", "pooler_type")
    config.comment("head", "BertModel with its pooler, whatever head `architectures` names")
    hidden = config.rate("hidden_dropout_prob", default=0.1)
    return {
        **sizes.fields(),
        "causal": False,
        "norm": component("layernorm", eps=config.number("layer_norm_eps", default=1e-12)),
        "placement": "post",
        "position": component("learned", max_tokens=config.whole("max_position_embeddings", default=512)),
        "attention": sizes.attention(),
        "feedforward": component("dense", hidden=config.whole("intermediate_size", default=3072)),
        "activation": plain(config, "hidden_act", "gelu"),
        "bias": True,
        "dropout": dropout(
            embedding=hidden, attention=config.rate("attention_probs_dropout_prob", default=0.1), sublayer=hidden
        ),
        "layers": sizes.layers,
        "embedding": {"types": config.whole("type_vocab_size", default=2), "norm": True},
        "head": component("pooler", activation="tanh"),
    }
