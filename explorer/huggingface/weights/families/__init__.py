"""The families whose names are known; where two fit a state dict alike, the first one is taken."""

from explorer.huggingface.weights.families.classic import BERT, FALCON, GPT2, GPT_J, GPT_NEOX
from explorer.huggingface.weights.families.deepseek_v4 import DEEPSEEK_V4
from explorer.huggingface.weights.families.family import Family
from explorer.huggingface.weights.families.hybrids import DEEPSEEK, KIMI_LINEAR, QWEN3_NEXT
from explorer.huggingface.weights.families.llama import DIFF_LLAMA, GEMMA, GPT_OSS, LLAMA, NANOCHAT
from explorer.huggingface.weights.families.t5 import T5

FAMILIES: tuple[Family, ...] = (
    *(LLAMA, GEMMA, DEEPSEEK, GPT_OSS, QWEN3_NEXT, KIMI_LINEAR, DEEPSEEK_V4, NANOCHAT, DIFF_LLAMA),
    *(GPT2, GPT_J, GPT_NEOX, FALCON, BERT, T5),
)
