"""DeepSeek-V4: compressed attention in a window, experts chosen by token id in the first layers, hyper-connections."""

from __future__ import annotations

from dataclasses import replace

from explorer.huggingface.components import Component, Fields, component, dropout
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.layers import SLIDING, named, stacked
from explorer.huggingface.reader import ConfigReader, shown
from explorer.huggingface.rope import LONGEST as LONGEST_NAME
from explorer.huggingface.rope import PARTIAL, THETA, Names, Rope, parameters, rotation
from explorer.huggingface.sizes import Sizes, read_sizes

CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
ATTENTIONS = {SLIDING: "sliding", CSA: "csa", HCA: "hca"}
FEEDFORWARDS = {"moe": "", "hash_moe": "_by_token"}
RATIOS = {0: SLIDING, 4: CSA, 128: HCA}  # as older configs give the types of layers
SCORES = {"sqrtsoftplus": "sqrt_softplus", "sigmoid": "sigmoid"}
NORM_EPS = 1e-6  # of the norms inside csa and hca
LARGEST_HC_EPS, LONGEST = 1e-5, 1048576
MAIN, COMPRESS = Names(partial=0.125), Names(theta=160_000.0, partial=0.125, theta_name="compress_rope_theta")


def deepseek_v4(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=129280, dim=4096, layers=43, heads=64, kv_heads=1, head_dim=512)
    _refuse(config)
    main, compress = _rotations(config, sizes.head_dim)
    fields: Fields = {
        **sizes.fields(),
        "norm": rmsnorm(config, NORM_EPS, cast="gemma"),
        "feedforward": _experts(config),
        "activation": _activation(config),
        "window": config.whole("sliding_window", default=128),
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "residual": _residual(config),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }
    attentions = _attentions(config, main, compress, sizes.head_dim)
    by_token = {"feedforward.select": "token", "feedforward.selection_bias": False}
    layers = _layers(config, sizes)
    blocks = {kind + end: {**attentions[kind], **(by_token if end else {})} for kind, end in sorted(set(layers))}
    if any(end for _, end in layers):
        config.remark("blocks by token: a table of token ids chooses their experts")
    return stacked(fields, [kind + end for kind, end in layers], blocks)


def _refuse(config: ConfigReader) -> None:
    config.only("rms_norm_eps", NORM_EPS, because="csa and hca have that one inside")
    config.only("num_key_value_heads", 1)
    config.only("n_shared_experts", 1)
    config.only("norm_topk_prob", True)
    config.only("topk_method", "noaux_tc")
    config.ignore("dspark_block_size", "dspark_target_layer_ids")  # of a drafter beside the model
    config.only("router_jitter_noise", 0)
    config.only("attention_bias", False)
    config.only("mlp_bias", False)
    config.only("hidden_act", "silu", "swish", because="the model reads swiglu_limit")
    if config.whole("num_nextn_predict_layers", default=1, least=0):
        config.remark("the main model: layers that predict further tokens are left out")


def _experts(config: ConfigReader) -> Component:
    return component(
        "moe",
        experts=config.whole("n_routed_experts", "num_local_experts", default=256),
        top_k=config.whole("num_experts_per_tok", default=6),
        hidden=config.whole("moe_intermediate_size", "intermediate_size", default=2048),
        shared=1,
        router=config.choice("scoring_func", of=SCORES, default="sqrtsoftplus"),
        selection_bias=True,
        scale=config.number("routed_scaling_factor", default=1.5),
    )


def _activation(config: ConfigReader) -> Component:
    return component("swiglu_clamped", limit=config.number("swiglu_limit", default=10.0))


def _residual(config: ConfigReader) -> Component:
    eps = config.number("hc_eps", default=1e-6, least=0)
    if eps > LARGEST_HC_EPS:
        config.problem("hc_eps", f"{shown(eps)} is not supported: mhc adds nothing to its weights")
    elif eps:
        config.comment("residual", f"hc_eps {eps:g} is left out: it moves outputs by about as much")
    streams, iterations = config.whole("hc_mult", default=4), config.whole("hc_sinkhorn_iters", default=20)
    return component("mhc", streams=streams, iterations=iterations, leave="weighted")


def _attentions(config: ConfigReader, main: Rope, compress: Rope, head_dim: int) -> dict[str, Fields]:
    """The changes of each kind of layer. One that sees the window alone is `hca` without compressed entries."""
    ranks = {
        "q_rank": config.whole("q_lora_rank", default=1024),
        "out_groups": config.whole("o_groups", default=8),
        "out_rank": config.whole("o_lora_rank", default=1024),
    }
    index = {
        "index_heads": config.whole("index_n_heads", default=64),
        "index_dim": config.whole("index_head_dim", default=128),
        "index_top_k": config.whole("index_topk", default=512),
    }
    csa, hca = _rates(config)
    found = {
        "sliding": (main, component("hca", ratio=None, **ranks)),
        "csa": (compress, component("csa", ratio=csa, **ranks, **index)),
        "hca": (compress, component("hca", ratio=hca, **ranks)),
    }
    return {
        kind: {"position": rope.position(head_dim, at="end", pairing="interleaved"), "attention": attention}
        for kind, (rope, attention) in found.items()
    }


def _rates(config: ConfigReader) -> tuple[int, int]:
    """Tokens to an entry of csa and of hca."""
    rates = config.nested("compress_rates")
    named_rates = ((CSA, "compress_rate_csa", 4), (HCA, "compress_rate_hca", 128))
    csa, hca = (
        config.whole(old, default=rates.whole(new, default=rate) if rates else rate) for new, old, rate in named_rates
    )
    return csa, hca


def _layers(config: ConfigReader, sizes: Sizes) -> list[tuple[str, str]]:
    """Attention and feed-forward of each layer. Lists go on with the layers that predict further tokens."""
    count = sizes.layers
    default = [HCA if layer < 2 or layer % 2 == 0 else CSA for layer in range(count)]
    ratios = config.wholes("compress_ratios")
    if ratios is not None:
        for ratio in sorted(set(ratios) - RATIOS.keys()):
            config.problem("compress_ratios", f"{ratio} is not supported", f"known: {', '.join(map(str, RATIOS))}")
        default = [RATIOS.get(ratio, HCA) for ratio in ratios]
    attentions = (config.texts("layer_types") or default)[:count]
    hashed = config.whole("num_hash_layers", default=3, least=0)
    feedforwards = config.texts("mlp_layer_types") or [
        "hash_moe" if layer < hashed else "moe" for layer in range(count)
    ]
    kinds = named(config, "layer_types", attentions, count, ATTENTIONS)
    ends = named(config, "mlp_layer_types", feedforwards[:count], count, FEEDFORWARDS)
    return list(zip(kinds, ends, strict=False))


def _rotations(config: ConfigReader, head_dim: int) -> tuple[Rope, Rope]:
    """Of layers that see the window alone, and of those with compressed entries."""
    rotated = config.optional_whole("qk_rope_head_dim")
    share = config.optional_number(PARTIAL) or (rotated / head_dim if rotated else 0.125)
    if rotated is not None and int(head_dim * share) != rotated:
        config.problem("qk_rope_head_dim", f"{rotated} is not {shown(share)} of a head of {head_dim} channels")
    main_names, compress_names = (_shared(names, share) for names in (MAIN, COMPRESS))
    longest, given = config.whole(LONGEST_NAME, default=LONGEST), parameters(config)
    main, compress = (given.nested(kind) if given else None for kind in ("main", "compress"))
    if main and compress:
        config.ignore(main_names.theta_name, compress_names.theta_name)  # the class writes its defaults beside these
        return (
            rotation(main, main, head_dim, main_names, longest),
            rotation(compress, compress, head_dim, compress_names, longest),
        )
    plain = rotation(config, None, head_dim, main_names, longest)
    return plain, _of_all(config, given, head_dim, compress_names, longest)


def _shared(names: Names, share: float) -> Names:
    return Names(names.theta, share, names.theta_name)


def _of_all(config: ConfigReader, given: ConfigReader | None, head_dim: int, names: Names, longest: int) -> Rope:
    """A mapping that is not one of `main` and `compress` is the latter's; its YaRN leaves cosines as they are."""
    if given and given.has(THETA):
        given.problem(THETA, "is not supported here: write rope_theta and compress_rope_theta beside this mapping")
    rope = rotation(config, given, head_dim, names, longest)
    if (
        given is None
        or given.has("attention_factor")
        or not isinstance(rope.scaling, dict)
        or "yarn" not in rope.scaling
    ):
        return rope
    return replace(rope, scaling={"yarn": {**rope.scaling["yarn"], "attention_factor": 1}})
