"""Two implementations of one module: what compiling costs is told apart, and one block's never touches another's."""

import pytest
import torch
from torch import nn
from torch._dynamo import config
from torch._dynamo.callback import callback_handler

from explorer.errors import MeasureError, UsageError
from explorer.latency import implementation
from explorer.latency.implementation import Compiled, checked, implement

BACKEND = "eager"  # traced by the compiler's front end, run as it is: no C++


class Layer(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x, n=0):
        return torch.relu(self.map(x)) + n


class Stepping(nn.Module):
    """Adds a word's length: a graph of its own for each word."""

    def __init__(self):
        super().__init__()
        self.word = ""

    def forward(self, x):
        return x + len(self.word)


def compiled(module=None):
    return Compiled(module or Layer(), backend=BACKEND)


def counts(one):
    facts = one.facts()
    return facts["compiles"], facts["recompiles"]


@pytest.mark.parametrize("impl", ["eager", "compile"])
def test_words_are_known(impl):
    assert checked([impl, impl]) == (impl,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compiled"], "impl 'compiled' is unknown; it is one of: eager, compile; did you mean 'compile'?"),
        (["eager", "jit"], "impl 'jit' is unknown; it is one of: eager, compile"),
        ([], "no impl is named; it is one of: eager, compile"),
    ],
)
def test_other_words_list_the_known(words, message):
    with pytest.raises(UsageError) as caught:
        checked(words)
    assert str(caught.value) == message


def test_implementing_checks_the_word_too():
    with pytest.raises(UsageError, match="'jit' is unknown"):
        implement(Layer(), "jit")


def test_eager_is_the_module_itself():
    module, copy = Layer(), Layer()
    eager = implement(module, "eager")
    assert eager.call is module
    assert eager.of_copy(copy) is copy
    assert eager.facts() == {}


def test_compiled_code_gives_the_same_results_and_is_compiled_once():
    """Public case C2: the seconds of compiling are a number of their own."""
    module, x = Layer(), torch.randn(3, 4)
    one = compiled(module)
    for _ in range(3):
        torch.testing.assert_close(one.call(x), module(x))
    assert counts(one) == (1, 0)
    assert one.facts()["compile_s"] > 0
    assert one.facts()["compile_note"] is None


def test_copies_of_the_weights_share_the_code():
    module, others = Layer(), [Layer() for _ in range(3)]
    one, x = compiled(module), torch.randn(3, 4)
    one.call(x)
    for other in others:
        torch.testing.assert_close(one.of_copy(other)(x), other(x))
    assert counts(one) == (1, 0)


def test_as_many_blocks_as_one_likes_are_compiled_each_for_its_own_shape():
    """torch keeps no more than `recompile_limit` versions of one Python function, the later ones for any shape."""
    every = [compiled() for _ in range(config.recompile_limit + 2)]
    for tokens, one in enumerate(every, start=2):
        one.call(torch.randn(tokens, 4))
    assert {counts(one) for one in every} == {(1, 0)}
    for tokens, one in enumerate(every, start=2):
        one.call(torch.randn(tokens, 4))
    assert {counts(one) for one in every} == {(1, 0)}


def test_compiling_of_one_is_not_counted_for_another():
    one, other = compiled(), compiled()
    one.call(torch.randn(3, 4))
    before = one.facts()
    other.call(torch.randn(3, 4))
    assert one.facts() == before


def test_a_length_that_grows_is_counted_as_compiled_again():
    one = compiled()
    one.call(torch.randn(3, 4))
    one.call(torch.randn(5, 4))
    assert counts(one) == (2, 1)


def test_backward_belongs_to_its_forward():
    module, x = Layer(), torch.randn(3, 4)
    one = Compiled(module, backend="aot_eager")
    y = one.call(x)
    forward = one.facts()["compile_s"]
    for _ in range(3):
        y.sum().backward()
        y = one.call(x)
    assert counts(one) == (1, 0)
    assert one.facts()["compile_s"] >= forward


def test_where_torch_gives_up_it_is_told():
    module = Stepping()
    one = compiled(module)
    for letters in range(config.recompile_limit + 2):
        module.word = letters * "a"
        one.call(torch.ones(1))
    assert one.facts()["compile_note"] == (
        f"compiled {config.recompile_limit} times, where torch gives up: later calls may have run eagerly"
    )


def test_what_was_not_watched_to_the_end_is_not_told():
    one = compiled()
    one.call(torch.randn(3, 4))
    torch._dynamo.reset()
    facts = one.facts()
    assert facts["compile_s"] is facts["compiles"] is facts["recompiles"] is None
    assert facts["compile_note"] == "compiling was not watched to the end: torch's compile state was reset"


@pytest.mark.parametrize("reset", [False, True])
def test_torch_calls_nothing_of_a_module_that_is_gone(reset):
    listeners = callback_handler.start_callbacks, callback_handler.end_callbacks
    before = [list(found) for found in listeners]
    one = compiled()
    one.call(torch.randn(3, 4))
    assert [len(found) for found in listeners] == [len(found) + 1 for found in before]
    if reset:
        torch._dynamo.reset()
        before = [[], []]
    del one
    assert [list(found) for found in listeners] == before


@pytest.fixture
def without_compiler(monkeypatch):
    """As torch fails where there is none, on any machine."""

    class InvalidCxxCompiler(RuntimeError):
        pass

    def fail(graph, inputs):
        raise InvalidCxxCompiler("No working C++ compiler found in config.cpp.cxx: (None, 'g++')\n\nand more")

    implementation._start_compiler.cache_clear()
    yield fail
    implementation._start_compiler.cache_clear()


def test_a_machine_without_compiler_says_so_before_anything_is_built(without_compiler):
    with pytest.raises(MeasureError) as caught:
        Compiled(Layer(), backend=without_compiler)
    assert str(caught.value) == (
        "not compiled: InvalidCxxCompiler: No working C++ compiler found in config.cpp.cxx: (None, 'g++'); "
        "install g++ or clang, or name one in CXX"
    )


def test_what_the_compiler_cannot_take_is_a_reason(monkeypatch):
    def choke(graph, inputs):
        raise NotImplementedError("no such operator\nand a page of advice")

    monkeypatch.setattr(implementation, "_start_compiler", lambda device, backend: None)
    one = Compiled(Layer(), backend=choke)
    with pytest.raises(MeasureError, match=r"^not compiled: NotImplementedError: no such operator$"):
        one.call(torch.randn(3, 4))


def test_running_out_of_memory_stays_what_it_is(monkeypatch):
    def full(graph, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(implementation, "_start_compiler", lambda device, backend: None)
    with pytest.raises(torch.OutOfMemoryError):
        Compiled(Layer(), backend=full).call(torch.randn(3, 4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_real_compiler():
    module, x = Layer(), torch.randn(3, 4)
    one = implement(module, "compile")
    with torch.no_grad():
        torch.testing.assert_close(one.call(x), module(x))
    assert counts(one) == (1, 0)
