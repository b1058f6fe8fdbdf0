"""Fields that any config may have: those that do not change the architecture, and those that are off."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_BY_REASON: Mapping[str, str] = {
    "where the config comes from, and which code reads it": """
        model_type architectures _name_or_path name_or_path transformers_version auto_map _commit_hash unsloth_version
        unsloth_fixed gradient_checkpointing torchscript
    """,
    "tokens with a meaning": """
        bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id
        decoder_start_token_id forced_bos_token_id forced_eos_token_id tokenizer_class prefix
    """,
    "number formats and kernels": """
        dtype torch_dtype quantization_config quantization expert_dtype use_bfloat16 _attn_implementation
        _attn_implementation_autoset attn_implementation _experts_implementation use_flash_attn _flash_attn_2_enabled
        use_cache cache_implementation pretraining_tp attention_softmax_in_fp32 masked_softmax_fusion
        bias_dropout_fusion slow_but_exact chunk_size_feed_forward ep_size
    """,
    "the start and the training": """
        initializer_range initializer_factor output_router_logits router_aux_loss_coef aux_loss_alpha seq_aux
        problem_type task_specific_params finetuning_task classifier_dropout
    """,
    "heads of other tasks": """
        id2label label2id num_labels summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout
    """,
    "what a call returns, and generation": """
        output_attentions output_hidden_states output_past output_scores return_dict return_dict_in_generate
        use_return_dict do_sample max_length min_length max_new_tokens temperature top_k top_p typical_p num_beams
        num_beam_groups num_return_sequences early_stopping length_penalty repetition_penalty diversity_penalty
        no_repeat_ngram_size encoder_no_repeat_ngram_size exponential_decay_length_penalty remove_invalid_values
        suppress_tokens begin_suppress_tokens bad_words_ids
    """,
}
INERT: frozenset[str] = frozenset(name for names in _BY_REASON.values() for name in names.split())
"""Fields that may say anything. A family that reads one of them still does."""
OFF: Mapping[str, Any] = MappingProxyType(
    {
        "is_encoder_decoder": False,
        "is_decoder": False,
        "add_cross_attention": False,
        "cross_attention_hidden_size": None,
        "tie_encoder_decoder": False,
        "pruned_heads": {},
    }
)
"""What else a base class writes, and the one value of it that stands for a family that does not read it."""
