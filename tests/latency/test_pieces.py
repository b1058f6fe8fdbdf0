"""Pieces do what the block does: the same kernels in all, the same numbers, the same gradients, from the same place."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from explorer import load
from explorer.assembly.build import build_block
from explorer.blueprint.workload import Workload
from explorer.latency.pieces import CONNECTION, pieces
from explorer.latency.runner import Feed, ready

DIM, B, T, CONTEXT = 16, 2, 3, 7
WORKLOADS = {
    "prefill": Workload("prefill", batch=B, tokens=T, dtype="float32"),
    "continued": Workload("prefill", batch=B, tokens=T, context=CONTEXT, dtype="float32", kv_dtype="bfloat16"),
    "decode": Workload("decode", batch=B, context=CONTEXT, dtype="float32"),
    "train": Workload("train", batch=B, tokens=T, dtype="float32"),
}
BLOCKS = {
    **{name: {"residual": name} for name in ("add", "attnres", "highway", "hyper_connections", "layerscale", "mhc")},
    **{placement: {"placement": placement} for placement in ("post", "sandwich", "res_post")},
    "deepnorm": {"residual": "deepnorm", "placement": "post", "layers": 4},
    "bare": {"residual": "none", "placement": "none", "norm": "none"},
    "parallel": {"layout": "parallel"},
    "parallel, own norms": {"layout": {"parallel": {"shared_norm": False}}},
    "window": {"window": 2},
    "bias": {"position": "t5_bias"},
    "recurrent": {"attention": "gated_deltanet"},
    "experts": {"feedforward": {"moe": {"experts": 4, "top_k": 2, "hidden": 16}}},
    "dropout": {"dropout": {"attention": 0.1, "sublayer": 0.1}},
    "cross": {"encoder": {}},
    "attention alone": {"feedforward": "none"},
}
each_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
each_block = pytest.mark.parametrize("fields", BLOCKS.values(), ids=BLOCKS)


def step_of(fields, workload):
    plan = load({"dim": DIM, "heads": 2, **fields}).plan()
    settled = workload.settled(encoder=plan.encoder is not None)
    name = plan.stack.label("block")
    feed = Feed(DIM, source=settled.source is not None)
    return ready(lambda device, dtype: build_block(plan, name, device=device, dtype=dtype), settled, feed, device="cpu")


def itself(step):
    """The call of a step that runs its own module."""
    return step.through(step.module)


class Kernels(TorchDispatchMode):
    """Counts operators that compute or move something."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.seen[func] += 1
        return func(*args, **(kwargs or {}))


def kernels(call):
    with Kernels() as counted:
        call()
    return counted.seen


@each_workload
@each_block
def test_the_kernels_of_all_pieces_are_those_of_the_block(fields, workload):
    step = step_of(fields, workload)
    found = {name: itself(piece) for name, piece in pieces(step).items()}
    expected = kernels(itself(step))
    for _ in range(2):
        assert sum((kernels(call) for call in found.values()), Counter()) == expected


@each_workload
def test_what_pieces_there_are(workload):
    named = {
        "add": ["attention", "feedforward", CONNECTION],
        "parallel": ["attention", "feedforward", CONNECTION],
        "cross": ["attention", "cross_attention", "feedforward", CONNECTION],
        "attention alone": ["attention", CONNECTION],
    }
    for block, names in named.items():
        found = pieces(step_of(BLOCKS[block], workload))
        assert list(found) == names
        assert {piece.phase for piece in found.values()} == {workload.phase}
        assert {itself(piece)().shape for piece in found.values()} == {(B, 1 if workload.phase == "decode" else T, DIM)}


# Not where a step leaves something behind, a state or a window that moved on: the next begins with other values.
@pytest.mark.parametrize("workload", list(WORKLOADS)[:3])
@pytest.mark.parametrize("block", [name for name in BLOCKS if name not in ("recurrent", "window")])
def test_what_stands_in_for_the_sublayers_gives_the_blocks_own_output(block, workload):
    step = step_of(BLOCKS[block], WORKLOADS[workload])
    expected, connection = itself(step)(), itself(pieces(step)[CONNECTION])
    for _ in range(3):
        torch.testing.assert_close(connection(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("workload", list(WORKLOADS)[:3])
@pytest.mark.parametrize("block", ["add", "bias", "parallel", "cross"])
def test_a_sublayer_gives_the_same_at_every_call(block, workload):
    found = pieces(step_of(BLOCKS[block], WORKLOADS[workload]))
    for piece in found.values():
        call = itself(piece)
        first = call()
        assert not first.requires_grad
        for _ in range(3):
            torch.testing.assert_close(call(), first, rtol=0, atol=0)
        with torch.no_grad():
            again = piece.result(piece.module, *piece.inputs)
        torch.testing.assert_close(again, first, rtol=0, atol=0)


@pytest.mark.parametrize("block", ["add", "mhc", "parallel", "post", "cross"])
def test_a_sublayer_gets_the_gradients_that_it_gets_in_the_block(block):
    step = step_of(BLOCKS[block], WORKLOADS["train"])
    found = pieces(step)
    itself(step)()
    expected = {name: weight.grad.clone() for name, weight in step.module.named_parameters() if ".branch" in name}
    for name, piece in found.items():
        if name != CONNECTION:
            itself(piece)()
            assert all(weight.grad is not None for weight in piece.module.parameters())
            assert piece.inputs[0].grad.abs().max() > 0
    for name, weight in step.module.named_parameters():
        if name in expected:
            torch.testing.assert_close(weight.grad, expected[name])


def test_gradients_do_not_add_up_over_calls():
    """Nor do those of a table that belongs to the stack."""
    for piece in pieces(step_of({"position": "t5_bias"}, WORKLOADS["train"])).values():
        call, grads = itself(piece), []
        for _ in range(2):
            call()
            weights = [weight for owner in (piece.module, *piece.positions) for weight in owner.parameters()]
            grads.append([weight.grad.clone() for weight in weights if weight.grad is not None])
        assert grads[0]
        torch.testing.assert_close(*grads)


def test_the_connection_of_a_training_step_reaches_every_norm():
    step = step_of({"placement": "sandwich"}, WORKLOADS["train"])
    connection = pieces(step)[CONNECTION]
    itself(connection)()
    weights = dict(connection.module.named_parameters())
    assert len(weights) == 4
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in weights.values())


def test_a_copy_has_weights_and_a_cache_of_its_own():
    step = step_of({}, WORKLOADS["decode"])
    for piece in pieces(step).values():
        expected, copy = itself(piece)(), piece.copied()
        mine, theirs = ({t.data_ptr() for t in one.module.parameters()} for one in (piece, copy))
        assert mine
        assert not mine & theirs
        assert copy.nbytes == piece.nbytes
        torch.testing.assert_close(itself(copy)(), expected, rtol=0, atol=0)
        assert copy.cache is not piece.cache
        for weight in copy.module.parameters():
            weight.data.zero_()
        torch.testing.assert_close(itself(piece)(), expected, rtol=0, atol=0)


def test_bytes_are_those_of_the_weights_and_of_what_the_cache_holds():
    found = pieces(step_of({"norm": "rmsnorm", "position": "learned"}, WORKLOADS["decode"]))
    held = 2 * B * CONTEXT * DIM * 4
    assert found["attention"].nbytes == held + 4 * DIM * DIM * 4
    assert found["feedforward"].nbytes == sum(weight.nbytes for weight in found["feedforward"].module.parameters())
    assert found[CONNECTION].nbytes == 2 * DIM * 4


def test_the_table_of_a_position_belongs_to_the_attention_that_reads_it():
    with_table, without = (pieces(step_of({"position": name}, WORKLOADS["train"])) for name in ("t5_bias", "none"))
    (table,) = with_table["attention"].positions
    size = sum(tensor.nbytes for tensor in (*table.parameters(), *table.buffers()))
    assert size > 0
    assert with_table["attention"].nbytes == without["attention"].nbytes + size
    copy = with_table["attention"].copied()
    assert copy.positions[0] is not table
    assert copy.positions[0] is copy.module.position[0]


@pytest.mark.parametrize("workload", ["decode", "train"])
def test_the_block_is_as_it_was(workload):
    step = step_of({}, WORKLOADS[workload])
    modules = list(step.module.modules())
    expected = itself(step)().detach()
    for piece in pieces(step).values():
        itself(piece)()
    assert list(step.module.modules()) == modules
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    torch.testing.assert_close(itself(step)(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("workload", ["prefill", "train"])
def test_another_implementation_runs_in_the_modules_place(workload):
    piece, seen = pieces(step_of({}, WORKLOADS[workload]))["attention"], []

    def forward(x, **options):
        seen.append((x, options))
        return piece.module(x, **options)

    torch.testing.assert_close(piece.through(forward)(), itself(piece)(), rtol=0, atol=0)
    assert [(x is piece.inputs[0], sorted(options)) for x, options in seen] == [(True, ["cache", "context", "mask"])]
