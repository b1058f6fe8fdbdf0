"""The rules of the contract, by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from explorer.testing.check import Check
from explorer.testing.checks import (
    activation,
    closed_form,
    compiling,
    counting,
    cross,
    decoding,
    dropout,
    masks,
    model,
    norm,
    position,
    residual,
    settings,
    twin,
)
from explorer.testing.toy import Toy

_EVERY = (
    model.builds,
    model.shape_and_dtype,
    model.gradients,
    model.no_parameter_is_dead,
    model.repeatable_in_eval,
    model.batch_rows_independent,
    model.hides_the_future,
    model.state_dict_round_trip,
    model.same_on_meta,
    counting.parameters_add_up,
    counting.every_operator_counted,
    decoding.cache_equals_full_pass,
    settings.other_settings_work,
    twin.same_as_holds,
    compiling.compiles,
)


def _checks(*own: Callable[[Toy], None]) -> tuple[Check, ...]:
    return (*map(Check, (*_EVERY, *own)), Check(compiling.compiles_with_inductor, slow=True))


CHECKS: Mapping[str, tuple[Check, ...]] = MappingProxyType(
    {
        "norm": _checks(norm.keeps_shape_and_dtype, norm.float16_does_not_overflow),
        "activation": _checks(activation.keeps_shape_and_dtype),
        "attention": _checks(
            decoding.cache_equals_full_pass_in_a_window,
            decoding.cache_equals_full_pass_under_a_mask,
            decoding.cache_equals_full_pass_under_padding,
            masks.masked_out_row,
            masks.mask_hides,
            masks.mask_broadcasts,
            masks.padding_hides,
            masks.window_hides,
            masks.centred_window_hides,
            masks.causal_is_a_mask,
            dropout.picked_dropout_acts,
            cross.crosses,
            position.stays_with_the_stack,
            closed_form.closed_form_agrees,
        ),
        "residual": _checks(residual.declares_placements, residual.silent_sublayers, closed_form.closed_form_agrees),
        "feedforward": _checks(dropout.picked_dropout_acts, closed_form.closed_form_agrees),
        "position": _checks(
            position.keeps_shape_and_dtype, position.counts_from_the_start, position.far_places_in_bfloat16
        ),
    }
)
