"""Scaled rotary frequencies against transformers, and what may be written for them."""

from __future__ import annotations

import math

import jsonschema
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deepseek_v4.modeling_deepseek_v4 import apply_rotary_pos_emb as deepseek_v4
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama

import explorer
from explorer.registry.parameters import read_shape
from explorer_positions.rope import RoPE
from explorer_positions.scaling import Scaling

T, HEAD_DIM = 5, 64
PLACES = torch.arange(3000, 3000 + T)
THEIRS = {"original": "original_max_position_embeddings", "low": "low_freq_factor", "high": "high_freq_factor"}

SCALINGS = {  # as a blueprint writes it, and the rope's base
    "linear, Gemma 3": ({"linear": {"factor": 8}}, 1e6),
    "llama3, Llama 3.1": ({"llama3": {"factor": 8, "original": 8192, "low": 1, "high": 4}}, 5e5),
    "llama3, other bounds": ({"llama3": {"factor": 32.0, "original": 2000, "low": 0.5, "high": 3.5}}, 1e4),
    "yarn": ({"yarn": {"factor": 4, "original": 2048}}, 1e4),
    "yarn, gpt-oss": ({"yarn": {"factor": 32, "original": 4096, "truncate": False}}, 150000),
    "yarn, DeepSeek-V3": ({"yarn": {"factor": 40, "original": 4096, "attention_factor": 1}}, 1e4),
    "yarn, DeepSeek-V4": ({"yarn": {"factor": 16, "original": 65536, "attention_factor": 1.0}}, 160000),
    "yarn, other bounds": ({"yarn": {"factor": 2, "original": 512, "beta_fast": 16, "beta_slow": 2.5}}, 1e4),
    "yarn, factor 1": ({"yarn": {"factor": 1, "original": 512}}, 1e4),
    "yarn, all pairs slow": ({"yarn": {"factor": 4, "original": 10}}, 1e4),
    "yarn, a step": ({"yarn": {"factor": 4, "original": 2048, "beta_fast": 4, "beta_slow": 4, "truncate": False}}, 1e4),
}


def config(written, base):
    ((name, numbers),) = written.items()
    parameters = {"rope_type": name, "rope_theta": base} | {THEIRS.get(k, k): v for k, v in numbers.items()}
    return LlamaConfig(
        hidden_size=2 * HEAD_DIM, num_attention_heads=2, max_position_embeddings=10**7, rope_parameters=parameters
    )


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_and_amplitude_are_transformers(name):
    written, base = SCALINGS[name]
    rope = RoPE(HEAD_DIM, base=base, scaling=Scaling.parse(written))
    frequency, factor = ROPE_INIT_FUNCTIONS[next(iter(written))](config(written, base), "cpu")
    torch.testing.assert_close(rope.frequency, frequency, rtol=1e-6, atol=0)
    assert rope.amplitude == pytest.approx(factor)


@pytest.mark.parametrize("name", SCALINGS)
def test_rotation_is_llamas_of_transformers(name):
    written, base = SCALINGS[name]
    x = torch.randn(2, 3, T, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    cos, sin = LlamaRotaryEmbedding(config(written, base))(x, PLACES[None])
    theirs, _ = llama(x, x, cos, sin)
    ours = RoPE(HEAD_DIM, base=base, scaling=Scaling.parse(written)).rotate(x, PLACES)
    # An angle of 3000 is known to 1.2e-4 in float32.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_frequencies_without_scaling_are_transformers_to_the_last_bit():
    theirs = LlamaRotaryEmbedding.compute_default_rope_parameters(
        LlamaConfig(head_dim=HEAD_DIM, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    )[0]
    torch.testing.assert_close(RoPE(HEAD_DIM, base=5e5).frequency, theirs, rtol=0, atol=0)


def test_factor_1_changes_nothing():
    plain = RoPE(HEAD_DIM).frequency
    for form in ({"linear": {"factor": 1}}, *({name: {"factor": 1, "original": 64}} for name in ("llama3", "yarn"))):
        rope = RoPE(HEAD_DIM, scaling=Scaling.parse(form))
        torch.testing.assert_close(rope.frequency, plain)
        assert rope.amplitude == 1


def test_the_defaults_are_the_papers():
    written = {"factor": 4, "original": 512}
    full = {**written, "attention_factor": None, "beta_fast": 32, "beta_slow": 1, "truncate": True}
    assert Scaling.parse({"yarn": written}) == Scaling.parse({"yarn": full})
    assert Scaling.parse({"yarn": written}).amplitude == pytest.approx(0.1 * math.log(4) + 1)
    assert Scaling.parse({"llama3": written}) == Scaling.parse({"llama3": {**written, "low": 1, "high": 4}})


@pytest.mark.parametrize("factor", [None, 1.0, 0.7])
def test_the_way_back_is_deepseek_v4s(factor):
    """It turns the output of its attention back by -sin with the same cos, so that a factor multiplies once more."""
    scaling = {"yarn": {"factor": 16, "original": 128, "attention_factor": factor}}
    rope = RoPE(24, dims=8, at="end", pairing="interleaved", scaling=Scaling.parse(scaling))
    x, places = torch.randn(2, 3, T, 24, generator=torch.Generator().manual_seed(0)), torch.arange(3, 3 + T)
    angle = places[None, :, None] * rope.frequency
    cos, sin = angle.cos() * rope.amplitude, angle.sin() * rope.amplitude
    torch.testing.assert_close(rope.rotate(x, places), deepseek_v4(x, cos, sin))
    torch.testing.assert_close(rope.rotate(x, -places), deepseek_v4(x, cos, -sin))
    there_and_back = rope.rotate(rope.rotate(x, places), -places)
    torch.testing.assert_close(there_and_back[..., -8:], x[..., -8:] * rope.amplitude**2)
    torch.testing.assert_close(there_and_back[..., :-8], x[..., :-8], rtol=0, atol=0)


@pytest.mark.parametrize("name", SCALINGS)
def test_the_schema_describes_what_is_parsed(name):
    jsonschema.validate(SCALINGS[name][0], Scaling.schema())


YARN_KEYS = "factor (required), original (required), attention_factor, beta_fast, beta_slow, truncate"
ONE_OF = "scaling is one of yarn, llama3, linear, such as {linear: {factor: 8}}, not "
REFUSED = [
    (8, ONE_OF + "8"),
    ("yarn", ONE_OF + "'yarn'"),
    ({}, ONE_OF + "{}"),
    ({"ntk": {"factor": 2}}, ONE_OF + "{'ntk': {'factor': 2}}"),
    ({"linear": {"factor": 2}, "yarn": {}}, ONE_OF + "{'linear': {'factor': 2}, 'yarn': {}}"),
    ({"linear": None}, "linear needs a mapping of factor (required), not None"),
    ({"linear": {}}, "linear lacks factor; it takes factor (required)"),
    ({"yarn": {"factor": 2}}, f"yarn lacks original; it takes {YARN_KEYS}"),
    ({"yarn": {"factor": 2, "original": 8, "low": 1}}, f"yarn has no 'low'; it takes {YARN_KEYS}"),
    ({"yarn": {"low": 1, "b": 1}}, f"yarn has no 'low', 'b' and lacks factor, original; it takes {YARN_KEYS}"),
    ({"linear": {"factor": 0.5}}, "factor of linear must be a number of at least 1, not 0.5"),
    ({"linear": {"factor": True}}, "factor of linear must be a number of at least 1, not True"),
    ({"linear": {"factor": "8"}}, "factor of linear must be a number of at least 1, not '8'"),
    ({"yarn": {"factor": 2, "original": 8.5}}, "original of yarn must be a whole number of at least 1, not 8.5"),
    ({"yarn": {"factor": 2, "original": 0}}, "original of yarn must be a whole number of at least 1, not 0"),
    (
        {"yarn": {"factor": 2, "original": 8, "attention_factor": 0}},
        "attention_factor of yarn must be a number above 0 or null, not 0",
    ),
    ({"yarn": {"factor": 2, "original": 8, "truncate": 1}}, "truncate of yarn must be true or false, not 1"),
    ({"yarn": {"factor": 2, "original": 8, "beta_fast": 0.5}}, "beta_fast 0.5 must be at least beta_slow 1.0"),
    ({"llama3": {"factor": 2, "original": 8, "low": 4}}, "low 4 must be below high 4.0"),
]


@pytest.mark.parametrize(("written", "message"), REFUSED, ids=[str(written) for written, _ in REFUSED])
def test_what_is_refused(written, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        Scaling.parse(written)
    assert str(caught.value) == message


def test_what_may_be_written_in_words():
    assert read_shape(Scaling | None).text == (
        "{yarn: {factor, original, attention_factor: null, beta_fast: 32.0, beta_slow: 1.0, truncate: true}} or "
        "{llama3: {factor, original, low: 1.0, high: 4.0}} or {linear: {factor}} or null"
    )


FIELDS = {"dim": 128, "heads": 2, "layers": 2}


def test_a_blueprint_may_have_it():
    scaling = {"yarn": {"factor": 4, "original": 2048}}
    blueprint = explorer.load({**FIELDS, "position": {"rope": {"scaling": scaling}}})
    (rope,) = explorer.build(blueprint, device="cpu").stack.positions
    torch.testing.assert_close(rope.frequency, RoPE(HEAD_DIM, scaling=Scaling.parse(scaling)).frequency)


def test_a_blueprint_says_where_it_is_wrong():
    with pytest.raises(explorer.BlueprintError, match=r"position\.scaling: linear lacks factor"):
        explorer.load({**FIELDS, "position": {"rope": {"scaling": {"linear": {}}}}})
    fields = {"base": 1, "scaling": {"yarn": {"factor": 4, "original": 64}}}
    with pytest.raises(explorer.RefusedError, match="yarn needs a base above 1, not 1"):
        explorer.build(explorer.load({**FIELDS, "position": {"rope": fields}}))
