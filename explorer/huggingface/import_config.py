"""A config of a Hugging Face model becomes a blueprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explorer.blueprint.fields import FIELDS
from explorer.errors import BlueprintError, Problem, Where, did_you_mean, hints
from explorer.huggingface.components import Fields
from explorer.huggingface.families import FAMILIES
from explorer.huggingface.inert import INERT, OFF
from explorer.huggingface.json_source import ConfigSource
from explorer.huggingface.reader import ConfigReader, Findings, shown

ORDER = (
    *("dim", "heads", "head_dim", "causal", "norm", "placement", "layout", "position", "attention", "window"),
    *("feedforward", "activation", "bias", "dropout", "residual", "encoder", "decoder", "blocks", "layers", "vocab"),
    *("embedding", "head", "tie_embeddings"),
)
"""As a person writes a blueprint; changes of one parameter follow their field."""
ALWAYS = frozenset({"norm", "position", "attention", "feedforward", "activation", "layers"})
"""What a reader wants to see, also where it is the default."""
WITH_LM_HEAD = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


@dataclass(frozen=True)
class Import:
    """A blueprint's fields, and what a person should know: of the whole, and {field: of this field}."""

    model_type: str
    name: str
    fields: Fields
    remarks: tuple[str, ...]
    comments: Mapping[str, str]


def import_config(config: Mapping[str, Any]) -> Fields:
    """The blueprint of a config, as fields for `explorer.load`; `config`: what a config.json holds.

    Raises: BlueprintError with all that is not understood: fields, values, the model type.
    """
    return read_import(ConfigSource(config, Where("<config>"))).fields


def read_import(source: ConfigSource) -> Import:
    """Raises: BlueprintError."""
    findings = Findings()
    reader = ConfigReader(source.values, source.places, source.home, findings)
    model_type = source.values.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise BlueprintError(_unknown(model_type, source))
    fields = FAMILIES[model_type](reader)
    _note_other_heads(reader, fields)
    if reader.has("quantization_config"):
        reader.remark("quantized weights: their bytes follow `weight_dtype` of a workload, not quantization_config")
    reader.finish(INERT, OFF)
    if findings.problems:
        raise BlueprintError(sorted(findings.problems, key=lambda problem: problem.where.line or 0))
    name = source.values.get("_name_or_path")
    return Import(
        model_type,
        name if isinstance(name, str) else "",
        _short(fields),
        tuple(findings.remarks),
        findings.comments,
    )


def _unknown(model_type: Any, source: ConfigSource) -> Problem:
    where = source.places.get("model_type", source.home)
    known = f"known: {', '.join(FAMILIES)}"
    if model_type is None:
        return Problem(where, "model_type", "is missing: it says what the other fields mean", (known,))
    close = did_you_mean(model_type, FAMILIES) if isinstance(model_type, str) else None
    lines = hints(close, _text_inside(source.values), known)
    return Problem(where, "model_type", f"no import for {shown(model_type)}", lines)


def _text_inside(values: Mapping[str, Any]) -> str | None:
    text = values.get("text_config")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    return f"its text_config is a {inner}, which can be imported by itself" if inner in FAMILIES else None


def _note_other_heads(reader: ConfigReader, fields: Fields) -> None:
    """A remark on classes with a head that is not a language model's: the blueprint has that of the language model."""
    if "lm" not in fields.get("head", "lm"):
        return
    others = [name for name in reader.texts("architectures") or () if not name.endswith(WITH_LM_HEAD)]
    if others:
        reader.remark(f"with the head of the language model, not as {', '.join(others)}")


def _short(fields: Fields) -> Fields:
    """In order, without the defaults of the language."""
    told = {key: value for key, value in fields.items() if key in ALWAYS or not _is_default(key, value)}
    return dict(sorted(told.items(), key=lambda item: ORDER.index(item[0].split(".")[0])))


def _is_default(key: str, value: Any) -> bool:
    default = FIELDS[key].default if key in FIELDS else None
    return bool(value == default and type(value) is type(default))
