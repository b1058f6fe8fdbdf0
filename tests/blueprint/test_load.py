"""Where blueprints are found, their bases, name and requirements, encodings, and how long it all may take."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
import yaml

from explorer.blueprint import files
from explorer.blueprint.load import load
from explorer.errors import BlueprintError, UsageError
from tests.blueprint.work import calls_of

SMALL = "dim: 64\nheads: 4\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory beside an empty folder of published blueprints."""
    published = tmp_path / "share"
    here = tmp_path / "here"
    published.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(files, "published_folders", lambda: iter([published]))
    return here


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# files, what is asked for, the dim of what is found
FOUND = [
    ({"here/a.yaml": 1}, "a.yaml", 1),
    ({"here/a.yaml": 1}, "a", 1),
    ({"here/a.yml": 1}, "a", 1),
    ({"here/a": 1, "here/a.yaml": 2}, "a", 1),
    ({"here/sub/a.yaml": 1}, "sub/a.yaml", 1),
    ({"here/sub/a.yaml": 1}, "sub/a", 1),
    ({"share/a-v0.1.yaml": 1}, "a-v0.1", 1),
    ({"here/a-v0.1.yaml": 1, "share/a-v0.1.yaml": 2}, "a-v0.1", 1),
    ({"share/a.yaml": 1}, "a.yaml", 1),
    # a run folder of the same name hides nothing
    ({"here/a/result.json": 1, "share/a.yaml": 2}, "a", 2),
    ({"here/a/result.json": 1, "here/a.yaml": 2}, "a", 2),
]


@pytest.mark.parametrize(("there", "name", "dim"), FOUND)
def test_a_blueprint_is_found_by_path_or_published_name(folder, registry, there, name, dim):
    for path, number in there.items():
        write(folder.parent / path, f"dim: {number}\nheads: 1\n")
    assert load(name, registry=registry).plan().dim == dim
    write(folder / "child.yaml", f"base: {name}\n")
    assert load(Path("child.yaml"), registry=registry).plan().dim == dim


def test_a_base_is_beside_the_file_that_names_it(folder, registry):
    write(folder / "deep" / "base.yaml", "dim: 1\nheads: 1")
    write(folder / "deep" / "middle.yaml", "base: base.yaml\nbias: true")
    write(folder / "top.yaml", "base: deep/middle.yaml")
    plan = load("top.yaml", registry=registry).plan()
    assert (plan.dim, plan.stack.base.bias) == (1, True)


def test_study_fields_of_a_base_are_not_taken_over(read):
    study = (
        "name: other\nexplore: {norm: [none]}\nskip: [{norm: none}]\nbaseline: {norm: none}\nworkloads: [{tokens: 3}]\n"
    )
    child = read(SMALL + study, "bias: true")
    assert (child.name, child.axes, child.skips, child.baseline.indexes) == ("1", (), (), None)
    assert child.workloads[0].tokens is None


def test_the_name_is_the_stem_of_the_file(read):
    assert read(SMALL).name == "0"
    assert read(SMALL + "name: mine").name == "mine"
    assert read(SMALL + "name: null").name == "0"
    assert read({"dim": 64, "heads": 4}).name == "blueprint"


def test_a_mapping_may_have_a_base(folder, registry):
    write(folder / "a.yaml", SMALL)
    assert load({"base": "a", "bias": True}, registry=registry).plan().stack.base.bias is True


@pytest.mark.parametrize("text", [SMALL, "\ufeff" + SMALL, SMALL.replace("\n", "\r\n")])
def test_standard_input(registry, monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="ascii"))
    blueprint = load("-", registry=registry)
    assert (blueprint.name, blueprint.path, blueprint.plan().dim) == ("blueprint", "<stdin>", 64)


def test_errors_of_standard_input_name_it(registry, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"dim: x\nheads: 4")))
    with pytest.raises(BlueprintError, match=r"^<stdin>:1:6: dim: must be int"):
        load("-", registry=registry)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(BlueprintError, match=r"^<stdin>: the blueprint is empty"):
        load("-", registry=registry)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ((SMALL + "# 残差").encode(), "UTF-8"),
        ((SMALL + "# 残差").encode("utf-8-sig"), "UTF-8"),
        ((SMALL + "# 残差").encode("gbk"), "GB18030"),
        ((SMALL + "# 残差").encode("utf-16"), "UTF-16"),
    ],
)
def test_the_encoding_is_known(folder, registry, data, encoding):
    write(folder / "a.yaml", data)
    assert load("a", registry=registry).encoding == encoding


def test_requirements_are_checked_and_nothing_is_installed(read, told):
    read(SMALL + 'requires: ["pytest>=1", PyYAML, "nothing-like-it>=1; python_version < \'3\'"]')
    read(SMALL + "requires: null")
    error = told(SMALL + 'requires: ["pytest<1", "no-such-dist>=2", "a b c", 3]')
    assert "0.yaml:3:12: requires[0]: pytest<1 is required but pytest" in error
    assert 'requires[1]: no-such-dist>=2 is required but not installed; run `pip install "no-such-dist>=2"`' in error
    assert "requires[2]: 'a b c' is no requirement" in error
    assert "requires[3]: must be a requirement such as" in error
    assert "requires: must be a list such as" in told(SMALL + "requires: pytest")
    assert "0.yaml:3:12: requires[0]: no-such" in told(SMALL + "requires: [no-such]", "bias: true")


ERRORS = [
    ("base: b", "0.yaml:3:7: base: there is no blueprint 'b', neither in"),
    ("base: 0", "0.yaml:3:7: base: must be a file or a published name, not the number 0"),
    ("base: [a]", "base: must be a file or a published name, not a list"),
    ("base: 0.yaml", "0.yaml:3:7: base: a blueprint cannot be its own base: 0.yaml -> 0.yaml"),
    ("base: ./0.yaml", "a blueprint cannot be its own base: 0.yaml -> 0.yaml"),
    ("name: 3", "0.yaml:3:7: name: must be a text, not the number 3"),
    ("name: []", "name: must be a text, not a list"),
    ("match: {params: baseline}", "0.yaml:3:8: match: matching sizes to the baseline is not available in this version"),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_header_errors(told, text, expected):
    assert expected in told(SMALL + text)


def test_a_null_match_is_none(read):
    read(SMALL + "match: null\nbase: null")


def test_a_circle_of_bases_is_refused(folder, registry):
    write(folder / "a.yaml", "base: b")
    write(folder / "b.yaml", "base: c")
    write(folder / "c.yaml", "base: a")
    with pytest.raises(
        BlueprintError, match=r"c\.yaml:1:7: base: .* its own base: a\.yaml -> b\.yaml -> c\.yaml -> a\.yaml"
    ):
        load("a", registry=registry)


def test_what_is_not_there(folder, registry):
    write(folder / "llama.yaml", SMALL)
    write(folder.parent / "share" / "gpt2.yaml", SMALL)
    (folder / "empty").mkdir()
    for name, message in {
        "lama.yaml": "^lama.yaml: no such file\n  did you mean 'llama.yaml'\\?\n  published blueprints stand in ",
        "lama": "did you mean 'llama'\\?",
        "gpt": "did you mean 'gpt2'\\?",
        "no/such.yaml": "^no/such.yaml: no such file\n  there is no folder 'no'$",
        "empty": "^empty: this is a directory",
        "": "this is a directory",
        "a\0b": "no such file|cannot be read",
    }.items():
        with pytest.raises(BlueprintError, match=message):
            load(name, registry=registry)


NEAR = [  # what is written, what is suggested
    ("mistrl", "'mistral-7b' or 'mixtral-8x7b'"),
    ("lama3", "'llama-3-70b' or 'llama-3-8b'"),
    ("Gpt2.yaml", "'gpt-2-xl'"),
    ("bert", "'bert-base-uncased'"),
    ("rmsnorm", None),
]


@pytest.mark.parametrize(("name", "meant"), NEAR)
def test_published_names_that_begin_alike_are_suggested(folder, registry, name, meant):
    for other in ("mistral-7b", "mixtral-8x7b", "llama-3-8b", "llama-3-70b", "gpt-2-xl", "bert-base-uncased"):
        write(folder.parent / "share" / f"{other}.yaml", SMALL)
    with pytest.raises(BlueprintError) as caught:
        load(name, registry=registry)
    guess = f"  did you mean {meant}?\n" if meant else ""
    where = folder.parent / "share"
    assert str(caught.value) == f"{name}: no such file\n{guess}  published blueprints stand in {where}"


def test_problems_of_a_base_name_the_base(told):
    assert told("dim: x\nheads: 4\n", "bias: true").startswith("0.yaml:1:6: dim: must be int")


def test_a_path_that_reaches_nothing_in_its_own_file_is_an_error_though_a_later_one_gives_it(told):
    assert "0.yaml:3:1: norm.bias: reaches nothing" in told(SMALL + "norm.bias: false", "norm: layernorm")


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("attention: &b {mha: *b}", "it would never end"),
        (BOMB, "more than 100,000 values"),
        ("norm: !!python/object/apply:os.system [ls]", "!!python/object/apply"),
        ("norm: rmsnorm\nnorm: layernorm", "norm"),
    ],
)
def test_hostile_files_are_refused_fast(told, text, expected):
    errors = []
    assert calls_of(lambda: errors.append(told(SMALL + text))) < 50_000
    assert expected in errors[0]


def test_huge_values_are_refused_fast(told):
    text, errors = f"dim: {'9' * 90}\nheads: -3\nvocab: 0\nlayers: {'9' * 20}\nwindow: 1e9\nseed: -1", []
    assert calls_of(lambda: errors.append(told(text))) < 50_000
    (error,) = errors
    assert [line.split(":")[3].strip() for line in error.splitlines() if not line.startswith(" ")] == [
        *("dim", "heads", "vocab", "layers", "window", "seed")
    ]


ABSURD = {
    "unknown fields": "".join(f"field{n}: 1\n" for n in range(20_000)),
    "unknown blocks": f"layers: [{', '.join(f'block{n}' for n in range(20_000))}]",
    "many blocks": f"blocks: {{{', '.join(f'b{n}: {{}}' for n in range(20_000))}}}",
    "a long axis of equal values": f"explore: {{heads: [{', '.join(['4'] * 50_000)}]}}",
    "a long list of equal workloads": f"workloads: [{', '.join(['{}'] * 40_000)}]",
    "a workload of long lists": f"workloads: [{{batch: {list(range(1, 9000))}, tokens: {list(range(1, 9000))}}}]",
    "a long wrong axis": f"explore: {{heads: {list(range(-30_000, 0))}}}",
}


@pytest.mark.parametrize("text", ABSURD.values(), ids=ABSURD)
def test_absurd_files_are_refused_as_fast_as_they_are_read(told, text):
    """In a few times what PyYAML takes of the same processor, 0.9 to 2.5 of it, however busy that is."""
    times = [time.process_time()]
    yaml.safe_load(SMALL + text)
    times.append(time.process_time())
    error = told(SMALL + text)
    times.append(time.process_time())
    assert times[2] - times[1] < 8 * (times[1] - times[0])
    assert len(error.splitlines()) < 400


def test_after_a_hundred_problems_the_rest_is_not_read(told):
    assert (
        told(SMALL + ABSURD["unknown fields"]).splitlines()[-1]
        == "0.yaml:1:1: 100 problems up to here; the rest is not read"
    )


def test_one_text_where_a_list_is_needed_is_told():
    with pytest.raises(UsageError, match=r"axes must be a list of texts: \['norm=rmsnorm'\]"):
        load({"dim": 8, "heads": 1}, axes="norm=rmsnorm")


def test_a_directory_as_base_is_told_where_it_is_written(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("dim: 8\nheads: 1\nbase: .\n")
    with pytest.raises(BlueprintError, match=r"a\.yaml:3:7: base: '\.' is a directory"):
        load(path)
