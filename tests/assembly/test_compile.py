"""The compile contract: one graph over two prefill shapes and cached steps, in one compiled object."""

import pytest
import torch

FIELDS = {
    "plain": {},
    "window, parallel": {
        "window": 3,
        "attention": {"gqa": {"kv_heads": 2}},
        "layout": "parallel",
        "placement": "sandwich",
        "position": "learned",
    },
    "encoder-decoder": {"encoder": {}, "position": "sinusoidal"},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_a_model_compiles_in_one_graph(make, fields):
    torch._dynamo.reset()
    model = make(vocab=11, layers=2, **fields)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    source = torch.tensor([[3, 1, 4]]) if "encoder" in fields else None
    with torch.no_grad():
        for T in (4, 6):
            ids = torch.randint(11, (1, T))
            torch.testing.assert_close(compiled(ids, source), model(ids, source))
        caches = model.make_cache(1, 9), model.make_cache(1, 9)
        for step, T in enumerate((4, 1, 1, 2, 1)):
            ids = torch.randint(11, (1, T))
            read = source if step == 0 else None
            ours, theirs = compiled(ids, read, cache=caches[0]), model(ids, read, cache=caches[1])
            torch.testing.assert_close(ours, theirs)
    assert caches[0].offset == 9
