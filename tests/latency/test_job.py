"""A job is plain JSON from which any process builds the same blocks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from explorer.assembly.build import build_block
from explorer.blueprint.load import load
from explorer.blueprint.resolved import resolved
from explorer.blueprint.workload import Workload
from explorer.errors import UsageError
from explorer.latency.job import Job, job_for
from explorer.registry.loading import load_registry
from tests.latency.jobs import FIELDS, job, recipe

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "blueprints/published").glob("*.yaml"))
STUDIES = sorted((ROOT / "blueprints/seeds").glob("*.yaml"))


@pytest.mark.parametrize("path", [*PUBLISHED, *STUDIES], ids=lambda path: path.stem)
def test_a_resolved_blueprint_is_the_same_plan_in_any_process(path):
    registry = load_registry()
    for row in load(path).combinations().rows:
        document = json.loads(json.dumps(resolved(row.state)))
        assert load(document, registry=registry).plan() == row.plan


def test_a_job_survives_json():
    before = job(recipe(least_bytes=7, touched_bytes=3), baseline="a", impls=["eager", "compile"], modules=["lab"])
    assert Job.from_dict(json.loads(json.dumps(before.to_dict()))) == before


def test_a_job_has_the_surroundings_of_this_process():
    """Public case C7: threads are told to the worker on purpose."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        made = job()
    finally:
        torch.set_num_threads(before)
    assert made.threads == 2
    assert made.float32_matmul == torch.get_float32_matmul_precision()
    assert made.versions["torch"] == torch.__version__


def test_the_baseline_has_a_clone():
    made = job(recipe("a"), recipe("b"), baseline="b")
    a, b, clone = made.recipes
    assert clone == replace(b, key="b~", baseline="b", clone_of="b")
    assert (a.baseline, b.baseline) == ("b", None)


def test_what_must_be_measured_beside_a_candidate():
    """Two baselines, of which one has a clone."""
    made = job(recipe("a"), recipe("b"), recipe("c", baseline="d"), recipe("d"), baseline="b")
    control = {"b", "b~"}
    assert made.beside == {"a": control, "b": {"b~"}, "c": {"d"}, "d": control, "b~": {"b"}}
    assert made.only({"c", "d", "b"}).beside == {"c": {"d"}, "d": {"b"}, "b": set()}
    assert job(recipe("a")).beside == {"a": frozenset()}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"effort": "quick"},
        {"cache": "warm"},
        {"impls": ["compile"]},
        {"modules": ["lab"]},
        {"last_cache": 1},
        {"baseline": "a"},
    ],
)
def test_the_digest_tells_jobs_apart(change):
    assert job(**change).digest != job().digest


@pytest.mark.parametrize("other", [{"dim": 32}, {"norm": "layernorm"}])
def test_the_digest_tells_blocks_apart(other):
    assert job(recipe(fields=FIELDS | other)).digest != job().digest


def test_the_digest_is_of_what_is_measured_and_not_of_where_it_stands():
    made = job()
    assert replace(made, path=("/elsewhere",)).digest == made.digest
    assert replace(made, device_name="another device").digest != made.digest
    assert replace(made, versions={"torch": "1.0", "explorer": "0"}).digest != made.digest
    assert replace(made, threads=made.threads + 1).digest != made.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "c"}, "baseline 'c' is unknown; it is one of: a"),
        ({"effort": "quik"}, r"effort 'quik' is unknown; .* did you mean 'quick'\?"),
        ({"cache": "hot"}, "cache mode 'hot' is unknown; it is one of: auto, warm, rotate, flush"),
        ({"impls": ["jit"]}, "'jit' is unknown; it is one of: eager, compile"),
    ],
)
def test_an_unknown_word_lists_the_known(options, message):
    with pytest.raises(UsageError, match=message):
        job(**options)


def test_an_unknown_device_lists_the_known():
    with pytest.raises(UsageError, match="device 'abacus' is not on this machine; it has: cpu"):
        job_for([recipe()], device="abacus")


def test_keys_are_unique():
    with pytest.raises(UsageError, match="two candidates to measure are called a"):
        job(recipe("a"), recipe("a", FIELDS | {"dim": 32}))


def outcome(made, device="cpu"):
    step = made.step(load_registry(), device=device, seed=3)
    return step, step.through(step.module)()


def test_a_recipe_builds_the_block_of_its_blueprint():
    step, y = outcome(recipe())
    block = build_block(load(FIELDS).plan(), "block", device="cpu", dtype="float32").eval()
    torch.testing.assert_close(y, block(step.x), rtol=0, atol=0)
    assert y.shape == (2, 4, 16)


@pytest.mark.parametrize(
    ("block", "shape"), [("encoder.block", (2, 7, 16)), ("decoder.block", (2, 4, 16))], ids=["encoder", "decoder"]
)
def test_blocks_of_both_stacks(block, shape):
    """The encoder's tokens are the source; the decoder reads it."""
    workload = Workload("prefill", batch=2, tokens=4, source=7, dtype="float32").settled(encoder=True)
    made = recipe(fields=FIELDS | {"encoder": {}}, workload=workload, block=block)
    assert outcome(made)[1].shape == shape


@pytest.mark.parametrize("phase", ["decode", "train"])
def test_other_phases(phase):
    length = {"context": 6} if phase == "decode" else {"tokens": 4}
    workload = Workload(phase, batch=2, dtype="float32", **length).settled()
    step, y = outcome(recipe(workload=workload))
    assert step.phase == phase
    assert y.shape[1] == (1 if phase == "decode" else 4)


def test_a_piece_of_a_block():
    """As large as the sublayer of the block that it is."""
    step, y = outcome(recipe(piece="feedforward"))
    block = build_block(load(FIELDS).plan(), "block", device="cpu", dtype="float32")
    weights = block.block.get_submodule("feedforward.branch").parameters()
    assert step.nbytes == sum(weight.nbytes for weight in weights)
    assert y.shape == (2, 4, 16)


def test_an_unknown_piece_lists_the_known():
    with pytest.raises(
        UsageError, match="piece of a block 'norm' is unknown; it is one of: attention, feedforward, con"
    ):
        outcome(recipe(piece="norm"))
