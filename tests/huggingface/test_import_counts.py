"""What is imported has as many parameters as transformers' own model of the same config: random sizes, all families."""

from __future__ import annotations

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import explorer
from explorer.huggingface.families import FAMILIES
from explorer.huggingface.import_config import import_config
from tests.huggingface.hf_configs import CASES

WRAPPED = {"gemma3": "gemma3_text", "kimi_k2": "deepseek_v3"}
NOT_GIVEN = {"deepseek_v2": {"num_experts_per_tok": 6}}  # what has no default


@pytest.fixture(autouse=True)
def _silent():
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def theirs(case, config):
    with torch.device("meta"):
        return getattr(transformers, case.architecture)(config)


def shortened(config):
    """Without fields at the default of the class, as some write their configs."""
    defaults = type(config).default_config_fields()
    told = {name: value for name, value in config.to_dict().items() if value != defaults.get(name, ...)}
    return {**told, "model_type": config.model_type}


def test_every_family_is_here():
    assert set(FAMILIES) == {*CASES, *WRAPPED}


@pytest.mark.parametrize("model_type", CASES)
@settings(max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_parameters_are_those_of_transformers(model_type, data):
    case = CASES[model_type]
    config = case.config(data.draw(case.fields))
    fields = import_config(config.to_dict())
    assert import_config(shortened(config)) == fields
    ours = explorer.build(explorer.load(fields), device="meta")
    assert count(ours) == count(theirs(case, config))


@pytest.mark.parametrize("model_type", CASES)
def test_defaults_are_those_of_transformers(model_type):
    given_fields = NOT_GIVEN.get(model_type, {})
    config = CASES[model_type].config(given_fields)
    assert import_config({"model_type": model_type, **given_fields}) == import_config(config.to_dict())
