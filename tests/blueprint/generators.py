"""Random blueprints and studies without faults of form, made of the toys of ``conftest``."""

from __future__ import annotations

from random import Random

VALUES = {
    "norm": ["rmsnorm", "layernorm", "none", None, {"rmsnorm": {"eps": 0.5}}, {"layernorm": {"bias": False, "eps": 1}}],
    "placement": ["pre", "post", "sandwich", "res_post", "none", None],
    "layout": ["sequential", {"parallel": {"shared_norm": False}}],
    "position": ["rope", {"learned": {"max_tokens": 8}}, "none", None],
    "attention": ["mha", {"gqa": {"kv_heads": 2, "qk_norm": "rmsnorm"}}, {"mha": {"bias": "out"}}, "mla", "none"],
    "cross_attention": [None, "none"],
    "feedforward": ["dense", {"dense": {"hidden": {"ratio": "8/3", "multiple_of": 4}}}, {"dense": {"hidden": 8}}, None],
    "activation": ["swiglu", "relu", {"leaky": {"slope": 0.5}}],
    "bias": [True, False],
    "causal": [True, False],
    "window": [None, 1, 7],
    "head_dim": [None, 16, 5],
    "heads": [4, 8, 64],
    "dropout": [None, {"attention": 0.5}, {"embedding": 0.25, "sublayer": 0}],
}
OF_STACKS = {
    "residual": ["add", "none", "mhc", {"mhc": {"streams": 2}}],
    "final_norm": ["auto", True, "none", "layernorm"],
}
OF_MODELS = {
    "vocab": [None, 8],
    "embedding": [None, {"norm": True}, {"scale": "sqrt_dim", "types": 2}, {"norm": {"rmsnorm": {"eps": 2}}}],
    "head": ["lm", {"lm": {"softcap": 3}}, {"pooler": {"activation": "relu"}}, None],
    "init": ["torch", {"normal": {"output": None}}],
    "seed": [0, 5],
}
LAYERS = [1, 3, "a", ["a", {"b": 2}], {"pattern": ["a", {"b": 1}], "count": 3}, ["block", "a"]]


def some(random, *tables):
    """Some fields of these tables, each with one of its values."""
    fields = [(name, values) for table in tables for name, values in table.items()]
    return {name: random.choice(values) for name, values in fields if random.random() < 0.3}


def block(random):
    """Changes to a block: a null head width only where heads divide dim, as they do here."""
    return some(random, VALUES)


def stack(random):
    return {**some(random, OF_STACKS, VALUES), "blocks": {"a": block(random), "b": block(random)}}


def document_of(seed):
    """A blueprint without faults, of one stack or two."""
    random = Random(seed)
    one = {"dim": 64, "heads": 4, **some(random, OF_MODELS), **stack(random), "layers": random.choice(LAYERS)}
    if random.random() < 0.5:
        return one
    encoder, decoder = stack(random), stack(random)
    for part in (encoder, *encoder["blocks"].values()):
        part.pop("cross_attention", None)  # the decoder's
    return {**_sequential(one), "encoder": encoder, "decoder": _sequential(decoder)}


def _sequential(part):
    """Without parallel layouts, which cannot stand beside cross-attention."""
    if not isinstance(part, dict):
        return part
    return {key: _sequential(value) for key, value in part.items() if key != "layout"}


# What an axis of a path may have; each list is cut and shuffled.
AXES = {
    **VALUES,
    **OF_STACKS,
    **{name: values for name, values in OF_MODELS.items() if name != "embedding"},
    "dim": [64, 32, 48],
    "layers": LAYERS,
    "heads": [4, 3, 8, {"no": "int"}],
    "attention.kv_heads": [1, 2, 4],
    "attention.qk_norm": ["as_written", "rmsnorm", "layernorm", None],
    "attention.qk_norm.eps": [0.5, "as_written", 2],
    "attention.bias": [True, "out"],
    "norm.eps": [0.5, 1, "as_written", 1e-6],
    "feedforward.hidden": [8, {"ratio": 2}, None],
    "residual.streams": [2, 4, "as_written"],
    "dropout.attention": [0, 0.5],
    "embedding.norm": [True, "rmsnorm", None],
    "tie_embeddings": [True, False],
    "head.softcap": [3, "as_written"],
}
SCOPES = ("", "", "blocks.a.", "blocks.b.")
SPLIT_SCOPES = (*SCOPES, "encoder.", "decoder.", "decoder.blocks.a.")
STRUCTURES = {
    "encoder": [None, {"layers": 2}, {"norm": "layernorm", "blocks": {"a": {"window": 3}}}],
    "decoder": [{}, None, {"layers": ["a", "block"]}],
    "blocks": [{}, {"a": {}}, {"a": {"bias": True}, "b": {"norm": "layernorm"}}, None],
    "blocks.a": [{}, {"bias": True}, {"attention": "mla"}],
    "blocks.c": [{"window": 7}, {}],
    "decoder.blocks.a": [{}, {"window": 1}],
}
RULES = [
    {"norm": "layernorm"},
    {"bias": True, "window": 1},
    {"heads": 8},
    {"era": "old"},
    {"era": "new", "norm": "rmsnorm"},
    {"layers": 3, "attention": "gqa"},
    {"attention.kv_heads": 2, "placement": "pre"},
    {"attention.bias": False},
    {"final_norm": "none"},
    {"head_dim": 16, "dim": 64},
    {"blocks.a.window": 7},
    {"decoder.cross_attention": "none"},
]


def study_of(seed, structural=0.3):
    """A blueprint with axes that interact, rest and are equal, rules, and maybe a baseline; it may have faults."""
    random = Random(seed)
    document = document_of(seed)
    if random.random() < 0.7:
        document["attention"] = random.choice([{"gqa": {"kv_heads": 2, "qk_norm": None}}, "mha"])
    if random.random() < structural / 2:
        document.pop("blocks")
        document["layers"] = 2
    axes: dict[str, object] = {}
    for _ in range(random.randint(1, 4)):
        name, options = _axis(random, structural, SPLIT_SCOPES if "encoder" in document else SCOPES)
        axes.setdefault(name, options)
    if random.random() < 0.5:
        axes["era"] = _era(random)
    items = list(axes.items())
    random.shuffle(items)
    explore = dict(items)
    rules = [rule for rule in random.sample(RULES, random.randint(0, 2)) if "era" in explore or "era" not in rule]
    named = {name: random.choice(list(options)) for name, options in explore.items() if random.random() < 0.3}
    return {**document, "explore": explore, "skip": rules, "baseline": named}


def _axis(random, structural, scopes):
    if random.random() < structural:
        name = random.choice(list(STRUCTURES))
        return name, random.sample(STRUCTURES[name], random.randint(1, len(STRUCTURES[name])))
    name = random.choice(list(AXES))
    values = [value for value in AXES[name] if value != {"no": "int"} or random.random() < 0.1]
    scope = random.choice(scopes) if name.split(".")[0] in VALUES else ""
    return scope + name, random.sample(values, random.randint(1, min(4, len(values))))


def _era(random):
    names = ["old", "new", "same", "other"][: random.randint(1, 4)]
    return {name: None if name == "same" else _changes(random) for name in names}


def _changes(random):
    found = some(random, {name: values for name, values in AXES.items() if name != "heads"})
    kept = dict(random.sample(list(found.items()), min(len(found), random.randint(0, 3))))
    kept = {name: value for name, value in kept.items() if value != "as_written"}
    if random.random() < 0.2:
        name = random.choice(list(STRUCTURES))
        kept[name] = random.choice(STRUCTURES[name])
    return kept
