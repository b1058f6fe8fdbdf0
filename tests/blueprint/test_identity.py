"""Ids of rows, worked out one by one with Python's integers."""

from __future__ import annotations

import hashlib
import json
from random import Random

import numpy as np
import pytest

from explorer.blueprint.identity import as_text
from explorer.blueprint.resolved import form
from explorer.blueprint.tree import plain

STUDY = {
    "dim": 64,
    "heads": 4,
    "attention": {"gqa": {"kv_heads": 1}},
    "explore": {
        "norm": ["rmsnorm", "layernorm"],
        "attention": ["as_written", "mha"],
        "attention.kv_heads": [4, 2],
        "bias": [True],
        "era": {"a": {"causal": False}, "b": {}},
    },
}
WORD = 2**64


def mix(h):
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB % WORD
    return h ^ (h >> 31)


def words(text):
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[at : at + 8], "big") for at in (0, 8)]


def id_of(blueprint, choices):
    lanes = words(repr(form(blueprint.state)))
    for axis in sorted(blueprint.axes, key=lambda axis: axis.name):
        if axis.name in choices:
            (option,) = (option for option in axis.options if option.text == choices[axis.name])
            digest = words(json.dumps([axis.name, option.text, plain(option.node)], sort_keys=True))
            lanes = [mix((h + d) % WORD) for h, d in zip(lanes, digest, strict=True)]
    return "".join(f"{lane:016x}" for lane in lanes)


def test_an_id_is_the_mix_of_what_was_chosen(read):
    blueprint = read(STUDY)
    rows = blueprint.combinations().rows
    assert len(rows) == 12
    assert [row.id for row in rows] == [id_of(blueprint, row.choices)[:8] for row in rows]
    assert any("attention.kv_heads" not in row.choices for row in rows)


def numbers(*texts):
    return np.array([[int(t[:16], 16) for t in texts], [int(t[16:], 16) for t in texts]], np.uint64)


@pytest.mark.parametrize("digits", [8, 9, 15, 16, 17, 24, 32])
def test_ids_have_the_fewest_digits_that_tell_all_apart(digits):
    random = Random(digits)
    other = [f"{random.getrandbits(128):032x}" for _ in range(50)]
    start = f"{random.getrandbits(128):032x}"[: digits - 1]
    twins = [f"{start}{end}".ljust(32, "0") for end in "9a"]
    found = as_text(numbers(*other[:20], twins[0], *other[20:], twins[1])).tolist()
    assert {len(id) for id in found} == {digits}
    assert found[20] == f"{start}9"
    assert found[-1] == f"{start}a"
    assert len(set(found)) == 52


def test_one_row_has_eight_digits_and_equal_rows_cannot_be():
    assert as_text(numbers("0123456789abcdef" * 2)).tolist() == ["01234567"]
    with pytest.raises(AssertionError, match="two rows with the same choices"):
        as_text(numbers("0123456789abcdef" * 2, "0123456789abcdef" * 2))
