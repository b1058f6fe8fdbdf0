"""The table of model types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from explorer.huggingface.components import Fields
from explorer.huggingface.configs.bert import bert
from explorer.huggingface.configs.bloom import bloom
from explorer.huggingface.configs.cohere import cohere
from explorer.huggingface.configs.deepseek import deepseek_v2, deepseek_v3
from explorer.huggingface.configs.deepseek_v4 import deepseek_v4
from explorer.huggingface.configs.falcon import falcon
from explorer.huggingface.configs.gemma import gemma2, gemma3, gemma3_text
from explorer.huggingface.configs.gpt2 import gpt2
from explorer.huggingface.configs.gpt_neox import gpt_neox
from explorer.huggingface.configs.gpt_oss import gpt_oss
from explorer.huggingface.configs.gptj import gptj
from explorer.huggingface.configs.kimi_linear import kimi_linear
from explorer.huggingface.configs.llama import llama, mistral, olmo2, phi3, qwen2, qwen3
from explorer.huggingface.configs.mixtral import mixtral
from explorer.huggingface.configs.qwen3_moe import qwen3_moe
from explorer.huggingface.configs.qwen3_next import qwen3_next
from explorer.huggingface.configs.t5 import t5
from explorer.huggingface.reader import ConfigReader

FAMILIES: Mapping[str, Callable[[ConfigReader], Fields]] = MappingProxyType(
    {
        "bert": bert,
        "bloom": bloom,
        "cohere": cohere,
        "deepseek_v2": deepseek_v2,
        "deepseek_v3": deepseek_v3,
        "deepseek_v4": deepseek_v4,
        "falcon": falcon,
        "gemma2": gemma2,
        "gemma3": gemma3,
        "gemma3_text": gemma3_text,
        "gpt2": gpt2,
        "gpt_neox": gpt_neox,
        "gpt_oss": gpt_oss,
        "gptj": gptj,
        "kimi_k2": deepseek_v3,  # DeepSeek-V3 by another name
        "kimi_linear": kimi_linear,
        "llama": llama,
        "mistral": mistral,
        "mixtral": mixtral,
        "olmo2": olmo2,
        "phi3": phi3,
        "qwen2": qwen2,
        "qwen3": qwen3,
        "qwen3_moe": qwen3_moe,
        "qwen3_next": qwen3_next,
        "t5": t5,
    }
)
"""What reads the config of each `model_type` of Hugging Face."""
