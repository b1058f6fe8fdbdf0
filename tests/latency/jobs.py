"""Jobs of toy blocks."""

from explorer.blueprint.load import load
from explorer.blueprint.resolved import resolved
from explorer.blueprint.workload import Workload
from explorer.latency.job import job_for
from explorer.latency.recipe import Recipe

FIELDS = {"dim": 16, "heads": 2, "vocab": 11}
PREFILL = Workload("prefill", batch=2, tokens=4, dtype="float32").settled()


def recipe(key="a", fields=FIELDS, workload=PREFILL, block="block", **more):
    return Recipe(key, resolved(load(fields).state), block, vars(workload), **more)


def job(*recipes, **options):
    return job_for(recipes or [recipe()], device="cpu", **options)
