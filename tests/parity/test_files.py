"""The files that transformers writes, with the names of those on the hub, fill our models as its own names do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import explorer
from tests.parity.families.t5 import T5
from tests.parity.harness import Pair, ours


@pytest.mark.parametrize("pair", T5, indirect=True, ids=str)
@pytest.mark.parametrize("kept", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"])
def test_any_name_of_a_shared_table_will_do(pair: Pair, kept: str) -> None:
    theirs = pair.theirs.state_dict()
    for name in {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} - {kept}:
        del theirs[name]
    model = ours(pair.family)
    explorer.load_weights(model, theirs)
    torch.testing.assert_close(model.embedding.table.weight, pair.ours.embedding.table.weight, rtol=0, atol=0)


def test_names_of_files(pair: Pair, tmp_path: Path) -> None:
    pair.theirs.save_pretrained(tmp_path)
    model = ours(pair.family)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        report = explorer.load_weights(model, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    assert report.loaded == tuple(model.state_dict())
    torch.testing.assert_close(model.state_dict(), pair.ours.state_dict(), rtol=0, atol=0)
