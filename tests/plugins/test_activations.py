"""Activations against torch's own and the papers' formulas in float64."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from transformers.activations import ACT2FN

from explorer_activations import register_activations

ACTIVATIONS = register_activations()


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def phi(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ONE_INPUT = {  # name: the formula, torch's own or transformers'
    "relu": (lambda x: x * (x > 0), torch.nn.ReLU()),
    "gelu": (lambda x: x * phi(x), torch.nn.GELU()),
    "gelu_tanh": (gelu_tanh, torch.nn.GELU(approximate="tanh")),
    "silu": (lambda x: x * sigmoid(x), torch.nn.SiLU()),
    "tanh": (lambda x: 1 - 2 / ((2 * x).exp() + 1), torch.nn.Tanh()),
    "sigmoid": (sigmoid, torch.nn.Sigmoid()),
    "mish": (lambda x: x * torch.tanh((1 + x.exp()).log()), torch.nn.Mish()),
    "relu2": (lambda x: x**2 * (x > 0), ACT2FN["relu2"]),
    "quick_gelu": (lambda x: x * sigmoid(1.702 * x), ACT2FN["quick_gelu"]),
    "situ": (lambda x: 4 * torch.tanh(x / 4) * sigmoid(x), None),
}
GATES = {  # name: what is done to the gate
    "glu": sigmoid,
    "reglu": lambda g: g * (g > 0),
    "geglu": lambda g: g * phi(g),
    "geglu_tanh": gelu_tanh,
    "swiglu": lambda g: g * sigmoid(g),
    "bilinear": lambda g: g,
}
ELSEWHERE = {"swiglu_clamped", "situ_glu"}  # both tensors are changed: test_swiglu_clamped.py, test_situ.py
GATED = {*GATES, *ELSEWHERE}

x = torch.linspace(-6, 6, 2 * 5 * 16, dtype=torch.float64).view(2, 5, 16)


@pytest.mark.parametrize("name", ONE_INPUT)
def test_activation_equals_formula_and_torch(name):
    formula, theirs = ONE_INPUT[name]
    ours = ACTIVATIONS[name]()
    torch.testing.assert_close(ours(x), formula(x))
    if theirs is not None:
        torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", GATES)
def test_gated_activation_acts_on_the_gate_only(name):
    gate, up = x, x.flip(-1) + 1
    torch.testing.assert_close(ACTIVATIONS[name]()(gate, up), GATES[name](gate) * up)


def test_glu_is_torchs_with_the_halves_swapped():
    gate, up = x.chunk(2, dim=-1)
    torch.testing.assert_close(ACTIVATIONS["glu"]()(gate, up), F.glu(torch.cat([up, gate], dim=-1)))


def test_every_registered_activation_is_in_a_table():
    assert sorted(ACTIVATIONS) == sorted({*ONE_INPUT, *GATED})


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_number_of_inputs_and_no_parameters(name):
    activation = ACTIVATIONS[name]()
    assert len(inspect.signature(activation.forward).parameters) == (2 if name in GATED else 1)
    assert not list(activation.parameters())


def test_quick_gelu_differs_from_gelu_by_what_its_docstring_says():
    fine = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    gap = (ACTIVATIONS["gelu"]()(fine) - ACTIVATIONS["quick_gelu"]()(fine)).abs().max()
    torch.testing.assert_close(gap, torch.tensor(2.0e-2, dtype=torch.float64), rtol=0, atol=5e-4)


# Public case F13: GELU has two forms, and so has GeGLU.

AT = torch.tensor([-1.0, 1.0, 2.0], dtype=torch.float64)
FORMS = {"gelu": [-0.15865525, 0.84134475, 1.95449974], "gelu_tanh": [-0.15880801, 0.84119199, 1.95459769]}


@pytest.mark.parametrize("name", FORMS)
def test_f13_values_of_either_form(name):
    expected = torch.tensor(FORMS[name], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[name]()(AT), expected, rtol=0, atol=5e-9)


def test_f13_the_forms_differ_by_what_is_known():
    fine = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    gap = (ACTIVATIONS["gelu"]()(fine) - ACTIVATIONS["gelu_tanh"]()(fine)).abs().max()
    torch.testing.assert_close(gap, torch.tensor(4.7324e-4, dtype=torch.float64), rtol=1e-4, atol=0)


def test_f13_geglu_takes_the_same_choice():
    up = torch.ones_like(AT)
    for gated, plain in (("geglu", "gelu"), ("geglu_tanh", "gelu_tanh")):
        torch.testing.assert_close(ACTIVATIONS[gated]()(AT, up), ACTIVATIONS[plain]()(AT))
