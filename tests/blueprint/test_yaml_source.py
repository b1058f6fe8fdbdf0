"""The strict YAML layer: what a text means, what is refused and where, and that nothing harmful is ever walked."""

from __future__ import annotations

import codecs
import contextlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from explorer.blueprint.tree import MAX_DEPTH, Entry, MappingNode, ScalarNode, SequenceNode, node_of, plain
from explorer.blueprint.yaml_source import MAX_BYTES, parse, parse_value, read_blueprint
from explorer.errors import BlueprintError, Problem, Where


def problems_of(call: Callable[[], object]) -> tuple[Problem, ...]:
    with pytest.raises(BlueprintError) as caught:
        call()
    return caught.value.problems


def complaint(text: str) -> str:
    """The whole message for a text that is refused."""
    return "\n".join(map(str, problems_of(lambda: parse(text, "f.yaml"))))


# --- values ---------------------------------------------------------------------------------------------------------

WORDS = [  # as written without quotes, its value
    ("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None), ("nULL", "nULL"),
    ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False),
    ("tRUE", "tRUE"), ("y", "y"), ("N", "N"), ("none", "none"),
    ("0", 0), ("-0", 0), ("7", 7), ("+7", 7), ("-12", -12), ("0o17", 15), ("0x1F", 31), ("0xff", 255),
    ("0o18", "0o18"), ("0b101", "0b101"), ("1_000", "1_000"), ("+", "+"), ("12abc", "12abc"),
    ("1e-5", 1e-5), ("1E-6", 1e-6), ("1.e5", 1e5), ("1.0e-5", 1e-5), (".5", 0.5), ("-.5", -0.5), ("+1.5", 1.5),
    ("1.", 1.0), ("1e5", 1e5), ("1E+5", 1e5), ("0.5", 0.5), ("0e0", 0.0), ("0.0e-999", 0.0), ("-2.5E3", -2500.0),
    (".", "."), ("e5", "e5"), ("1e", "1e"), ("1.5.2", "1.5.2"), ("8/3", "8/3"), ("2024-01-01", "2024-01-01"),
    ("rope", "rope"), ("lab_norms:rmsnorm", "lab_norms:rmsnorm"), ("onwards", "onwards"), ("=", "="), ("<<", "<<"),
    ("inf", "inf"), ("nan", "nan"), (".infinity", ".infinity"), ("1:75", "1:75"),
    (str(2**63), 2**63),
]  # fmt: skip


@pytest.mark.parametrize(("word", "value"), WORDS)
def test_word_follows_the_core_schema(word: str, value: object) -> None:
    found = plain(parse(f"key: {word}", None).entries[0].value)
    assert found == value
    assert type(found) is type(value)


REFUSED = [  # as written without quotes, what the message holds
    ("0512", "write 512, or 0o512 for octal"),
    ("-0512", "write -512"),
    ("089", "write 89"),
    ("00", "write 0"),
    ("00.5", "write 0.5"),
    ("01e-5", "write 1e-5"),
    ("1:30", "base-60"),
    ("1:30.5", "base-60"),
    ("12:30:45", "base-60"),
    *((word, "write true; a name must be quoted") for word in ("yes", "Yes", "YES", "on", "On", "ON")),
    *((word, "write false; a name must be quoted") for word in ("no", "No", "NO", "off", "Off", "OFF")),
    *((word, f"{word} is not a finite number") for word in (".inf", "-.inf", "+.Inf", ".INF", ".nan", ".NaN", ".NAN")),
    ("1.0e+400", "1.0e+400 overflows to infinity"),
    ("-1e999", "overflows to infinity"),
    ("1e-400", "underflows to zero"),
    ("9" * 5000, "an integer of 5000 characters is too large"),
    ("0x" + "F" * 80, "an integer of 320 bits is too large"),
]


@pytest.mark.parametrize(("word", "fragment"), REFUSED)
def test_refused_word_says_where_and_what_to_write(word: str, fragment: str) -> None:
    message = complaint(f"dim: 64\nnorm: {{eps: {word}}}")
    assert message.startswith("f.yaml:2:13: norm.eps: ")
    assert fragment in message


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "!!str {}", "! {}", "|-\n  {}"])
@pytest.mark.parametrize("word", ["0512", "1:30", "yes", "off", ".nan", "1.0e+400", "null", "1e-5", "<<"])
def test_quotes_make_any_word_text(word: str, quoted: str) -> None:
    node = parse("key: " + quoted.format(word), None).entries[0].value
    assert isinstance(node, ScalarNode)
    assert (node.value, node.quoted) == (word, True)


def test_a_yaml_1_1_boolean_is_refused_as_key_and_where_a_component_is_named() -> None:
    message = complaint("norm: off\noff: 1\nexplore: {gate: [on, false]}")
    assert "f.yaml:1:7: norm: off means false in YAML 1.1" in message
    assert "where a component is named, none means no component" in message
    assert "f.yaml:2:1: off means false in YAML 1.1" in message
    assert "f.yaml:3:18: explore.gate[0]: on means true in YAML 1.1" in message


TAGGED = [
    ("!!str 5", "5"), ("!!int 5", 5), ('!!int "5"', 5), ("!!float 5", 5.0), ("!!float 1e-5", 1e-5),
    ("!!bool true", True), ("!!null ''", None), ("!!map {a: 1}", {"a": 1}), ("!!seq [1]", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TAGGED)
def test_core_tags_are_allowed(text: str, value: object) -> None:
    found = plain(parse_value(text, None))
    assert found == value
    assert type(found) is type(value)


def test_any_one_value_can_be_parsed() -> None:
    assert [plain(parse_value(text, "--set")) for text in ("8", "[gqa, mla]", "", "# nothing")] == [
        8, ["gqa", "mla"], None, None,
    ]  # fmt: skip


# --- structure ------------------------------------------------------------------------------------------------------

FAULTY = [  # text, what the message holds
    ("heads: 4\ndim: 64\nheads: 8", "f.yaml:3:1: heads: 'heads' stands twice in one mapping, first at f.yaml:1:1"),
    ("norm: {eps: 1, 'eps': 2}", "f.yaml:1:16: norm.eps: 'eps' stands twice in one mapping, first at f.yaml:1:8"),
    ("a: {1: x}", "f.yaml:1:5: a: a key must be text, not the number 1\n  quote it"),
    ("a: {~: x}", "f.yaml:1:5: a: a key must be text, not null"),
    ("{? : x}", "f.yaml:1:3: a key must be text, not null"),
    ("true: x", "f.yaml:1:1: a key must be text, not true"),
    ("? [a, b]\n: x", "f.yaml:1:3: a key must be text, not a list"),
    ("{a: 1}: x", "f.yaml:1:1: a key must be text, not a mapping"),
    ("a: *b", "f.yaml:1:4: a: the alias *b has no anchor &b before it"),
    ("n: &norms 1\na: *norm", "f.yaml:2:4: a: the alias *norm has no anchor &norm before it\n  did you mean 'norms'?"),
    ("a: &x 1\nb: &x 2", "f.yaml:2:4: b: the anchor &x is defined twice, first at f.yaml:1:4"),
    ("block: &b {ffn: *b}", "f.yaml:1:17: block.ffn: the alias *b stands inside its own anchor &b (f.yaml:1:8)"),
    ("a: &a [1, *a]", "f.yaml:1:11: a[1]: the alias *a stands inside its own anchor &a"),
    ("a: &a {<<: *a}", "f.yaml:1:12: a.<<: the alias *a stands inside its own anchor &a"),
    ("a: !!python/object/apply:os.system [ls]", "f.yaml:1:4: a: the tag !!python/object/apply:os.system is not"),
    ("a: !!python/name:os.system x", "the tag !!python/name:os.system is not allowed"),
    ("a: !mine {b: 1}", "the tag !mine is not allowed"),
    ("a: !!binary aGk=", "the tag !!binary is not allowed"),
    ("a: !!str [1]", "the tag !!str is not allowed"),
    ("a: !!int x", "'x' is not what its tag !!int says"),
    ("a: !!int 1.5", "'1.5' is not what its tag !!int says"),
    ("a: !!int true", "'true' is not what its tag !!int says"),
    ("a: 1\n---\nb: 2", "f.yaml:2:1: a second document starts here"),
    ("- a", "f.yaml:1:1: a blueprint is a mapping of fields, not a list"),
    ("dim", "a blueprint is a mapping of fields, not the text 'dim'"),
    ("", "f.yaml: the blueprint is empty"),
    ("# only this\n", "f.yaml: the blueprint is empty"),
    ("---\n", "f.yaml: the blueprint is empty"),
    ('a: "\\ud800"', "f.yaml:1:4: a: '\\ud800' holds half of a character"),
]  # fmt: skip

BROKEN = [  # no YAML at all: what the message holds
    ("a:\n\tb: 1", "f.yaml:2:1: a tab stands where YAML wants spaces\n  indent with spaces"),
    ("a:\tb", "f.yaml:1:3: a tab stands where YAML wants spaces"),
    ("dim: 64\nheads:8\nbias: true", "f.yaml:2:1: this line is no key: value\n  a space must follow the colon"),
    ("a: b: c", "f.yaml:1:5: a second key: value on one line"),
    ("a: @b", "f.yaml:1:4: found character '@' that cannot start any token\n  text that starts with this"),
    ("a:\n  b: 1\n c: 2", "the fields of one mapping start in the same column"),
    ("a: 1\nb: [1,\n  2", "f.yaml:3:4: the text ends inside a list or mapping\n  close it with ] or }\n"
        "  it is opened at f.yaml:2:4"),
    ("a: 'b", "the text ends inside a quoted text\n  close it with the quote that opens it\n"
        "  it is opened at f.yaml:1:4"),
    ("a: [, 1]", "f.yaml:1:5: a value is missing here"),
    ("a: {b c: d: e}", "expected ',' or '}', but got ':'\n  values of a list or mapping stand between commas"),
    ("a: 1\nb: \x07", "f.yaml:2:4: the character U+0007 is not allowed in YAML"),
    ('a: "\\UFFFFFFFF"', "not valid YAML after this place"),
    ("%YAML 2.0\n---\na: 1", "found incompatible YAML document"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fragment"), FAULTY + BROKEN)
def test_faulty_text_says_where_and_what(text: str, fragment: str) -> None:
    assert fragment in complaint(text)


def test_all_problems_of_a_text_are_shown_at_once() -> None:
    found = problems_of(lambda: parse("dim: 0512\nheads: yes\nnorm: {eps: .nan, eps: 1}\n1: x\nb: *c\nd: [", "f.yaml"))
    places = [(problem.where.line, problem.path) for problem in found]
    assert places == [(1, "dim"), (2, "heads"), (3, "norm.eps"), (3, "norm.eps"), (4, ""), (5, "b"), (6, "")]
    assert len(str(BlueprintError(found)).splitlines()) > len(found)


def test_a_text_with_hundreds_of_problems_is_not_read_to_its_end() -> None:
    found = problems_of(lambda: parse("dim: 64\n" + "heads: yes\n" * 1000, "f.yaml"))
    assert len(found) == 101
    assert found[-1].message == "100 problems up to here; the rest is not read"


def test_every_node_knows_its_place() -> None:
    tree = parse("# comment\r\ndim: 64\r\nnorm:\r\n  rmsnorm: {eps: 1e-5}\r\nlayers: [a,\r\n  b]\r\n", "f.yaml")
    dim, norm, layers = tree.entries
    assert (tree.where, dim.key_where, dim.value.where) == (at(2, 1), at(2, 1), at(2, 6))
    assert isinstance(norm.value, MappingNode)
    rmsnorm = norm.value.entries[0]
    assert (norm.value.where, rmsnorm.key_where, rmsnorm.value.where) == (at(4, 3), at(4, 3), at(4, 12))
    assert layers.value == SequenceNode((ScalarNode("a", at(5, 10)), ScalarNode("b", at(6, 3))), at(5, 9))


def test_an_alias_keeps_the_place_where_its_value_is_written() -> None:
    entry = parse("a: &x 5\nb: *x", "f.yaml").entries[1]
    assert entry == Entry("b", at(2, 1), ScalarNode(5, at(1, 4)))


def at(line: int, column: int) -> Where:
    return Where("f.yaml", line, column)


# --- merge keys -----------------------------------------------------------------------------------------------------

BASES = "a: &a {heads: 4, dim: 64}\nb: &b {heads: 8, bias: true}\n"
MERGES = [  # by the merge spec (yaml.org/type/merge.html); keys of several letters, on which PyYAML releases differ
    ("{<<: *a}", {"heads": 4, "dim": 64}),
    ("{<<: [*a, *b]}", {"heads": 4, "dim": 64, "bias": True}),
    ("{<<: [*b, *a]}", {"heads": 8, "bias": True, "dim": 64}),
    ("{<<: *a, heads: 16}", {"dim": 64, "heads": 16}),
    ("{heads: 16, <<: *a}", {"heads": 16, "dim": 64}),
    ("{heads: 16, <<: [*a, *b], bias: null}", {"heads": 16, "dim": 64, "bias": None}),
    ("{first: 1, <<: *a, last: 2}", {"first": 1, "heads": 4, "dim": 64, "last": 2}),
    ("{<<: {heads: 2, <<: *b}}", {"heads": 2, "bias": True}),
    ("{<<: []}", {}),
    ('{"<<": 1}', {"<<": 1}),
    ('{"<<": 1, <<: *a}', {"<<": 1, "heads": 4, "dim": 64}),
    ("[<<]", ["<<"]),
]


@pytest.mark.parametrize(("use", "value"), MERGES)
def test_merge(use: str, value: object) -> None:
    found = plain(parse(f"{BASES}use: {use}", None))["use"]  # type: ignore[index]
    assert found == value
    assert list(found) == list(value)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("use", "fragment"),
    [
        ("{<<: 5}", "f.yaml:3:11: use.<<: << takes a mapping or a list of mappings, not the number 5"),
        ("{<<: }", "use.<<: << takes a mapping or a list of mappings, not null"),
        ("{<<: [*a, x]}", "f.yaml:3:16: use.<<: << takes a mapping or a list of mappings, not the text 'x'"),
        ("{<<: *a, <<: *b}", "f.yaml:3:15: use.<<: '<<' stands twice in one mapping, first at f.yaml:3:7"),
    ],
)
def test_faulty_merge(use: str, fragment: str) -> None:
    assert fragment in complaint(f"{BASES}use: {use}")


# --- harm -----------------------------------------------------------------------------------------------------------


def alias_bomb() -> str:
    """9 levels of 9 aliases: 9^9 leaves in some 400 bytes."""
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for inner, outer in zip("abcdefgh", "bcdefghi", strict=True):
        levels.append(f"{outer}: &{outer} [{', '.join([f'*{inner}'] * 9)}]")
    return "\n".join(levels)


def chain(link: str, links: int = 300) -> str:
    return "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {link.format(n - 1)}" for n in range(1, links))


HARMFUL = [
    (alias_bomb(), "more than 100,000 values when all aliases are written out"),
    (alias_bomb().replace("[", "{<<: [").replace("]", "]}"), "more than 100,000 values"),
    ("a: &a {" + ", ".join(f"k{n}: 1" for n in range(200)) + "}\nb: {<<: [" + "*a, " * 600 + "]}", "more than 100,000"),
    ("a: " + "[" * 300, f"nested more than {MAX_DEPTH} levels deep"),
    ("a: " + "{b: " * 10_000, f"nested more than {MAX_DEPTH} levels deep"),
    ("- " * 2_000, f"nested more than {MAX_DEPTH} levels deep"),
    (chain("{{x: *a{}}}"), f"nested more than {MAX_DEPTH} levels deep"),
]


@pytest.mark.parametrize(("text", "fragment"), HARMFUL, ids=range(len(HARMFUL)))
def test_harmful_text_is_refused_before_it_is_walked(text: str, fragment: str) -> None:
    tracemalloc.start()
    try:
        assert fragment in complaint(text)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_many_aliases_of_one_value_are_fine() -> None:
    tree = parse("a: &a {x: [1, 2]}\nb: [" + "*a, " * 1000 + "]", None)
    assert plain(tree)["b"] == [{"x": [1, 2]}] * 1000  # type: ignore[index]


# A loaded machine is no fault of the parser.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Text without U+007F: JSON lets it stand as it is, YAML does not. Keys below 1024 characters, PyYAML's limit.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | TEXTS | st.floats(
    allow_nan=False, allow_infinity=False, allow_subnormal=False
)  # fmt: skip
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@UNHURRIED
@given(st.dictionaries(TEXTS, TREES, max_size=5), st.sampled_from([None, 2]))
@example({"text": "\U0001f600", "yes": "no", "<<": {"<<": 1}, "": ""}, None)
def test_json_means_what_it_means_in_python(value: dict[str, object], indent: int | None) -> None:
    assert plain(parse(json.dumps(value, indent=indent), None)) == value
    assert plain(node_of(value)) == value


@UNHURRIED
@given(st.text(st.sampled_from("ab01.:-[]{}&*!|>'\"#%@, \n\t~?<\\U\x85é"), max_size=40))
def test_any_text_is_a_tree_or_a_blueprint_error(text: str) -> None:
    with contextlib.suppress(BlueprintError):
        plain(parse(text, "f.yaml"))


# --- files ----------------------------------------------------------------------------------------------------------

TEXT = "dim: 64  # 隐藏维度\n"
ENCODED = [
    (TEXT.encode(), "UTF-8"),
    (codecs.BOM_UTF8 + TEXT.encode(), "UTF-8"),
    (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), "UTF-16"),
    (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "UTF-16"),
    (TEXT.encode("gbk"), "GB18030"),
]


@pytest.mark.parametrize(("data", "encoding"), ENCODED)
def test_encodings(tmp_path: Path, data: bytes, encoding: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(data)
    source = read_blueprint(file)
    assert (source.text, source.encoding) == (TEXT, encoding)
    assert plain(parse(source.text, str(file))) == {"dim": 64}
    assert parse(source.text, str(file)).where == Where(str(file), 1, 1)


NO_BLUEPRINTS = [
    (b"", "the blueprint is empty"),
    (b"\n  \n# dim: 64\n---\n", "the blueprint is empty"),
    (b"dim: 64\nname: a\x00b", ":2: control character 0x00: this is no text file"),
    (b"\x89PNG\r\n\x1a\n", "control character 0x1a: this is no text file"),
    (codecs.BOM_UTF16_LE + b"a\x00\x00\x00", "control character 0x00"),
    (codecs.BOM_UTF16_LE + b"abc", "begins like UTF-16 and is not valid UTF-16"),
    (b"name: caf\xe9\n", "the text is neither UTF-8 nor GB18030"),
    (b"#" * (MAX_BYTES + 1), "larger than 1 MiB"),
]


@pytest.mark.parametrize(("data", "fragment"), NO_BLUEPRINTS, ids=range(len(NO_BLUEPRINTS)))
def test_file_that_is_no_blueprint(tmp_path: Path, data: bytes, fragment: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(data)
    (problem,) = problems_of(lambda: read_blueprint(file))
    assert str(problem).startswith(str(file))
    assert fragment in str(problem)


def test_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text("dim: 64")
    (problem,) = problems_of(lambda: read_blueprint(tmp_path / "quikstart.yaml"))
    assert str(problem) == f"{tmp_path / 'quikstart.yaml'}: no such file\n  did you mean 'quickstart.yaml'?"
    (problem,) = problems_of(lambda: read_blueprint(tmp_path / "nowhere" / "a.yaml"))
    assert problem.hints == (f"there is no folder {str(tmp_path / 'nowhere')!r}",)


def test_directory_and_unreadable_paths(tmp_path: Path) -> None:
    (directory,) = problems_of(lambda: read_blueprint(tmp_path))
    assert directory.message == "this is a directory; a blueprint is one file"
    (too_long,) = problems_of(lambda: read_blueprint(tmp_path / ("a" * 5000)))
    assert too_long.message.startswith("the file cannot be read: ")
    (nul,) = problems_of(lambda: read_blueprint(tmp_path / "a\0b"))
    assert nul.message.startswith("the file cannot be read: ")
