"""What state dicts hold besides the weights of a language model: nothing is lost where it finds no place."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Buffers that are computed anew, and what trains beside the model.
_HARMLESS = re.compile(
    r"(^|\.)rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)$"
    r"|\.(attn|attention|crossattention)\.(bias|masked_bias)$"  # causal masks: GPT-2, GPT-J, GPT-NeoX
    r"|^embeddings\.(position_ids|token_type_ids)$"
    # Of the first layer's cross-attention, which has no positions: in the files of T5.
    r"|^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$"
    r"|^cls\."  # BERT's pretraining heads
    r"|^mtp\."  # a module that predicts a further token: Qwen3-Next, DeepSeek-V4
)
_HEADS = re.compile(r"^(lm_head|pooler|score|classifier|qa_outputs)\.")
# DeepSeek-V3's module for a further token is a layer after the last one, with a projection of its own.
_FURTHER_TOKEN = ".eh_proj.weight"


def harmless(names: Iterable[str], *, has_head: bool) -> set[str]:
    """Those that a model needs nowhere; the weights of any head too where it has none."""
    names = list(names)
    layers = tuple(name.removesuffix(_FURTHER_TOKEN) + "." for name in names if name.endswith(_FURTHER_TOKEN))
    return {
        name
        for name in names
        if _HARMLESS.search(name) or name.startswith(layers) or (not has_head and _HEADS.match(name))
    }
