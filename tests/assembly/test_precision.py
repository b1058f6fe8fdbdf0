"""Tensors that stay in float32 when a model changes its dtype."""

import pytest
import torch
from torch import nn

from explorer import KeepsFloat32
from explorer.assembly.precision import wide_dtype, without_autocast


class Careful(KeepsFloat32):
    wide = ("gain", "mean", "absent")

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1.0001, 2.0]))
        self.register_buffer("mean", torch.tensor([1e6]))
        self.absent = None
        self.rough = nn.Parameter(torch.tensor([1.0001]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_wide_tensors_are_not_rounded(dtype):
    model = nn.Sequential(Careful()).to(dtype)
    (module,) = model
    torch.testing.assert_close(module.gain.data, torch.tensor([1.0001, 2.0]), rtol=0, atol=0)
    torch.testing.assert_close(module.mean, torch.tensor([1e6]), rtol=0, atol=0)
    assert isinstance(module.gain, nn.Parameter)
    assert module.rough.dtype == dtype


def test_wider_is_allowed_and_devices_follow():
    module = Careful().double()
    assert module.gain.dtype == module.mean.dtype == torch.float64
    single = module.float()
    assert single.gain.dtype == single.mean.dtype == torch.float32
    assert Careful().double().half().gain.dtype == torch.float32
    assert Careful().to("meta").gain.is_meta
    empty = Careful().to("meta").to_empty(device="cpu")
    assert (empty.gain.dtype, empty.gain.device.type) == (torch.float32, "cpu")


def test_the_dtype_of_new_wide_parameters():
    assert [wide_dtype(d) for d in (torch.bfloat16, torch.float32, torch.float64)] == [
        torch.float32,
        torch.float32,
        torch.float64,
    ]


def test_products_that_autocast_must_not_round():
    x = torch.randn(2, 3)

    def both(x):
        with without_autocast(x):
            exact = x @ x.mT
        return exact, x @ x.mT

    for call in (both, torch.compile(both, fullgraph=True, backend="aot_eager")):
        assert [y.dtype for y in call(x)] == [torch.float32] * 2
        with torch.autocast("cpu", torch.bfloat16):
            assert [y.dtype for y in call(x)] == [torch.float32, torch.bfloat16]
        assert call(x.to("meta"))[0].is_meta
    torch.compiler.reset()
