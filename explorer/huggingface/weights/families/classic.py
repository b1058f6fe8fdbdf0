"""LayerNorm and biases: GPT-2, BERT, GPT-J, GPT-NeoX, Falcon and BLOOM."""

from __future__ import annotations

from explorer.huggingface.weights.families.family import Family, Rename, decoder
from explorer.huggingface.weights.layouts import by_kv_head, transposed
from explorer.huggingface.weights.rules import Names, Take, either, rows

_GPT: Names = {"embedding.table": "wte", "stack.final_norm": "ln_f", "head.table": "lm_head"}
_GPT2: Names = {
    "attention.norm": "ln_1",
    "attention.branch.qkv": Take("attn.c_attn", transposed),
    "attention.branch.out": Take("attn.c_proj", transposed),
    "feedforward.norm": "ln_2",
    "feedforward.branch.up": Take("mlp.c_fc", transposed),
    "feedforward.branch.down": Take("mlp.c_proj", transposed),
}
_GPT_J: Names = {
    "parallel.norm": "ln_1",
    "attention.branch.qkv": rows("attn.q_proj", "attn.k_proj", "attn.v_proj"),
    "attention.branch.out": "attn.out_proj",
    "feedforward.branch.up": "mlp.fc_in",
    "feedforward.branch.down": "mlp.fc_out",
}
_NEOX: Names = {
    "attention.norm": "input_layernorm",
    "attention.branch.qkv": Take("attention.query_key_value", by_kv_head),
    "attention.branch.out": "attention.dense",
    "feedforward.norm": "post_attention_layernorm",
    "feedforward.branch.up": "mlp.dense_h_to_4h",
    "feedforward.branch.down": "mlp.dense_4h_to_h",
}
_FALCON: Names = {
    **_NEOX,
    "attention.norm": either("input_layernorm", "ln_attn"),
    "feedforward.norm": either("post_attention_layernorm", "ln_mlp"),
    "parallel.norm": "input_layernorm",
    "attention.branch.qkv": Take("self_attention.query_key_value", by_kv_head),
    "attention.branch.out": "self_attention.dense",
}
_FALCON_ENDS: Names = {
    "embedding.table": "word_embeddings",
    "embedding.norm": "word_embeddings_layernorm",
    "stack.final_norm": "ln_f",
    "head.table": "lm_head",
}
_NEOX_ENDS: Names = {"embedding.table": "embed_in", "stack.final_norm": "final_layer_norm", "head.table": "lm_head"}
_BERT_ENDS: Names = {
    "embedding.table": "embeddings.word_embeddings",
    "embedding.types": "embeddings.token_type_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
    "stack.positions.*.table": "embeddings.position_embeddings",
    "head.linear": "pooler.dense",
}
_BERT: Names = {
    "attention.branch.qkv": rows("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.branch.out": "attention.output.dense",
    "attention.norm_post": "attention.output.LayerNorm",
    "feedforward.branch.up": "intermediate.dense",
    "feedforward.branch.down": "output.dense",
    "feedforward.norm_post": "output.LayerNorm",
}
_BERT_RENAMES = (Rename(r"LayerNorm\.gamma$", "LayerNorm.weight"), Rename(r"LayerNorm\.beta$", "LayerNorm.bias"))

GPT2 = Family("gpt-2", {**_GPT, "stack.positions.*.table": "wpe"}, decoder("h", _GPT2))
GPT_J = Family("gpt-j", {**_GPT, "head.bias": "lm_head.bias"}, decoder("h", _GPT_J))
GPT_NEOX = Family("gpt-neox", _NEOX_ENDS, decoder("layers", _NEOX), (Rename(r"^embed_out\.", "lm_head."),))
FALCON = Family("falcon, bloom", _FALCON_ENDS, decoder("h", _FALCON))  # BLOOM too
BERT = Family("bert", _BERT_ENDS, decoder("encoder.layer", _BERT), _BERT_RENAMES, copies=())
