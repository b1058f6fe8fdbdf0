"""Values over a product of axes, against the same looked up at each place."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.blueprint.grid import Grid
from explorer.blueprint.merging import first_alike, merge
from explorer.blueprint.varied import Varied, joint, marked, ranked


def some(random, shape, most=4):
    """A value over some of the dimensions."""
    sizes = [size if random.random() < 0.5 else 1 for size in shape]
    codes = np.array([random.randrange(most) for _ in range(int(np.prod(sizes)))]).reshape(sizes)
    return Varied.coded(["a", "b", "c", "d", "e"][:most], codes, shape)


def product_of(seed):
    random = Random(seed)
    shape = tuple(random.randint(1, 4) for _ in range(random.randint(0, 4)))
    return random, shape, [some(random, shape) for _ in range(random.randint(1, 4))]


def at_each(varied):
    return [varied.at(place) for place in range(int(np.prod(varied.shape)))]


def sound(varied):
    """Values in the order of their first places, over no dimension along which they do not vary."""
    codes = np.broadcast_to(varied.codes, varied.shape).reshape(-1).tolist()
    assert list(dict.fromkeys(codes)) == list(range(len(varied.values)))
    for dim in varied.dims:
        assert (varied.codes != varied.codes.take([0], axis=dim)).any()
    return True


products = st.integers(0, 2**32).map(product_of)


@given(given=products)
def test_map_is_the_function_at_each_place(given):
    _, shape, parts = given
    calls = []

    def fn(*values):
        calls.append(values)
        return "".join(values).count("a")

    found = Varied.map(fn, *parts)
    tuples = list(zip(*map(at_each, parts), strict=True))
    assert at_each(found) == ["".join(values).count("a") for values in tuples]
    assert len(calls) == len(set(calls)) == len(set(tuples))
    assert found.shape == shape
    assert sound(found)
    assert all(map(sound, parts))


@given(given=products)
def test_values_at_places(given):
    random, shape, (one, *_) = given
    size = int(np.prod(shape))
    places = np.array(random.sample(range(size), random.randint(0, size)), np.intp)
    assert [one.values[code] for code in one.flat(places)] == [one.at(int(place)) for place in places]
    numbers = Varied.map(ord, one)
    assert numbers.everywhere().tolist() == [ord(value) for value in at_each(one)]
    firsts = {one.at(int(place)): int(place) for place in sorted(places, reverse=True)}
    assert one.firsts(marked(places, size)) == [firsts.get(value) for value in one.values]


@given(given=products)
def test_one_index_of_a_dimension_for_all(given):
    random, shape, (one, *_) = given
    if not shape:
        return
    dim = random.randrange(len(shape))
    index = random.randrange(shape[dim])
    found = one.fixed(dim, index)
    assert sound(found)
    for place in itertools.product(*map(range, shape)):
        other = (*place[:dim], index, *place[dim + 1 :])
        assert found.at(int(np.ravel_multi_index(place, shape))) == one.at(int(np.ravel_multi_index(other, shape)))


def test_a_value_along_one_axis():
    found = Varied.along(1, ["a", "b", "a"], (2, 3))
    assert (found.values, found.codes.tolist()) == (("a", "b"), [[0, 1, 0]])
    same = Varied.along(1, ["a", "A", "a"], (2, 3), key=str.lower)
    assert (same.values, same.dims, same.is_constant) == (("a",), (), True)


def test_what_tells_results_apart_may_be_another_than_equality():
    parts = Varied.along(0, [1, 2, 3], (3,))
    lists = Varied.map(lambda n: [n % 2], parts, key=tuple)
    assert (lists.values, lists.codes.tolist()) == (([1], [0]), [0, 1, 0])
    with pytest.raises(TypeError, match="unhashable"):
        Varied.map(lambda n: [n], parts)


def test_more_tuples_than_an_integer_counts():
    rows = [Varied.along(0, [(n, i) for i in range(60)], (60, 2)) for n in range(12)]
    assert 60 ** len(rows) > 2**64
    codes, firsts = joint([*rows, Varied.along(1, "ab", (60, 2))])
    assert codes.reshape(-1).tolist() == firsts.tolist() == list(range(120))


@pytest.mark.parametrize("most", [10, 2**60])
def test_keys_are_numbered_in_the_order_in_which_they_come_first(most):
    numbers, firsts = ranked(np.array([7, 2, 7, 0, 2]), most)
    assert (numbers.tolist(), firsts.tolist()) == ([0, 1, 0, 2, 1], [0, 1, 3])


class Shape(Grid):
    """A grid of a shape, without axes."""

    def __init__(self, shape):
        self.__dict__.update(axes=(), shape=shape)


@given(given=products)
def test_places_that_are_alike_are_one_row(given):
    random, shape, parts = given
    size = int(np.prod(shape))
    tuples = list(zip(*map(at_each, parts), strict=True))
    homes = [tuples.index(values) for values in tuples]
    assert first_alike(Shape(shape), parts).tolist() == homes
    ruled, faulty = (np.array([random.random() < 0.3 for _ in range(size)]) for _ in range(2))
    found = merge(Shape(shape), parts, ruled, faulty)
    assert found.homes.tolist() == sorted(set(homes))
    assert found.homes[found.row_of].tolist() == homes
    for home, place in zip(found.homes.tolist(), found.places.tolist(), strict=True):
        kept = [p for p in range(size) if homes[p] == home and not ruled[p] and not faulty[p]]
        assert place == (kept[0] if ruled[home] and kept else home)
