"""Operators that hold no matrix product, by family. What has neither a family nor a rule is reported as not counted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch._ops import OpOverload

FAMILIES: Mapping[str, frozenset[str]] = {
    family: frozenset(names.split())
    for family, names in {
        "view": """
            _unsafe_view lift lift_fresh resize resize_as set as_strided detach squeeze t transpose unsqueeze _conj
            _neg_view unsafe_split unsafe_split_with_sizes""",
        "allocation": """
            arange empty empty_like empty_permuted empty_strided eye fill full full_like linspace logspace new_empty
            new_empty_strided new_full new_ones new_zeros ones ones_like range scalar_tensor tril_indices triu_indices
            zero zeros zeros_like _efficientzerotensor bartlett_window blackman_window hamming_window hann_window
            kaiser_window fft_fftfreq fft_rfftfreq""",
        "copy": """
            _to_copy _reshape_copy _pin_memory cat clone copy constant_pad_nd flip repeat repeat_interleave roll rot90
            stack _stack _chunk_cat block_diag tril triu diag_embed as_strided_scatter diagonal_scatter select_scatter
            slice_scatter diagonal_backward select_backward slice_backward unfold_backward channel_shuffle
            native_channel_shuffle pixel_shuffle pixel_unshuffle im2col col2im
            reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
            reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
            replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward upsample_nearest1d
            upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d""",
        "indexing": """
            index index_add index_copy index_fill index_put index_reduce index_select _index_put_impl _unsafe_index
            _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate gather put take scatter
            scatter_add scatter_reduce masked_scatter masked_scatter_backward masked_select nonzero
            nonzero_static embedding embedding_dense_backward embedding_renorm""",
        "search": """
            sort topk kthvalue median nanmedian mode searchsorted bucketize isin unique_consecutive unique_dim
            _unique _unique2 histc bincount histogram cummax cummin _cummax_helper _cummin_helper""",
        "pointwise": """
            abs addr celu complex _conj_physical copysign elu elu_backward eq
            fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask floor_divide gcd ge
            gelu gelu_backward glu glu_backward gt hardshrink_backward hardsigmoid hardsigmoid_backward hardswish
            hardswish_backward hardtanh hardtanh_backward heaviside lcm le leaky_relu leaky_relu_backward linalg_cross
            log_sigmoid_backward log_sigmoid_forward lt masked_fill mish mish_backward ne polar _prelu_kernel
            _prelu_kernel_backward rrelu_with_noise rrelu_with_noise_backward rrelu_with_noise_functional rsub
            silu_backward softplus_backward softshrink_backward threshold threshold_backward xlogy""",
        "reduction": """
            all amax amin aminmax any argmax argmin count_nonzero cumprod cumsum dist equal linalg_vector_norm
            linalg__powsum logcumsumexp _logcumsumexp logsumexp max mean min nansum norm prod renorm
            segment_reduce _segment_reduce_backward std std_mean sum trace var var_mean _is_all_true
            _is_any_true""",
        "softmax": """
            _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _safe_softmax _masked_softmax
            _masked_softmax_backward""",
        "norm": """
            native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm
            _fused_rms_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit
            _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_no_update
            _batch_norm_with_update _batch_norm_with_update_functional batch_norm_backward _weight_norm_interface
            _weight_norm_interface_backward""",
        "random": """
            bernoulli binomial cauchy exponential geometric log_normal multinomial native_dropout
            native_dropout_backward _fused_dropout _masked_scale normal normal_functional poisson rand rand_like
            randint randint_like randn randn_like random randperm uniform _sample_dirichlet _dirichlet_grad
            _standard_gamma _standard_gamma_grad""",
        "loss": """
            binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss
            huber_loss_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss
            soft_margin_loss_backward nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
            multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward
            multilabel_margin_loss_backward""",
        "pooling": """
            _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
            adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward
            avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward max_pool2d_with_indices
            max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
            fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward
            max_unpool2d max_unpool3d""",
        "resampling": """
            upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
            _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward upsample_linear1d
            upsample_linear1d_backward upsample_bilinear2d upsample_bilinear2d_backward
            upsample_trilinear3d upsample_trilinear3d_backward upsample_bicubic2d upsample_bicubic2d_backward
            _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa
            _upsample_bicubic2d_aa_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d
            grid_sampler_3d_backward""",
        "check": """
            _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar
            _linalg_check_errors _local_scalar_dense sym_constrain_range sym_constrain_range_for_size is_pinned
            is_same_size record_stream""",
    }.items()
}
_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


@cache
def family(op: OpOverload) -> str | None:
    """The family of an operator of torch that holds no matrix product; None: a product, or nobody knows.

    Views and element-wise operators say so themselves. Only torch's own word is taken: a plugin's operator is unknown.
    """
    namespace, name = op._schema.name.split("::", maxsplit=1)
    if namespace == "profiler":
        return "check"
    if namespace != "aten":
        return None
    if name in _FAMILY_OF:
        return _FAMILY_OF[name]
    if op.is_view:
        return "view"
    if torch.Tag.view_copy in op.tags:
        return "copy"
    if torch.Tag.pointwise in op.tags:
        return "pointwise"
    # In place: the name of the operator that it stands for, and an underscore.
    return _FAMILY_OF.get(name.removesuffix("_"))
