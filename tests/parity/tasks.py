"""What models are asked and how: a decoder alone, an encoder alone, an encoder with a decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FIRST_ID = 4  # below stand the special tokens of their configs: rows for padding get no gradient there
STEPS = (1, 2, *[1] * 8)  # ten, one of them of two tokens
MIDDLE, END = (1, 2, 3), (-3, -2, -1)  # the end says nothing of a causal model: no real token would see it


@dataclass(frozen=True)
class Question:
    """Token ids (B, T), what an encoder beside a decoder reads (B, S), and which of the tokens that may be padding
    are real: of the source where there is one.
    """

    ids: Tensor
    source: Tensor
    real: Tensor | None = None


Theirs = Callable[[nn.Module, Question, Any], tuple[Tensor, Any]]
Ours = Callable[[nn.Module, Question, Any], Tensor]


@dataclass(frozen=True)
class Task:
    """theirs(model, question, cache) -> answer (B, T, n) or (B, n), cache; ours(model, question, cache) -> answer."""

    theirs: Theirs
    ours: Ours
    decodes: bool = True
    reads_source: bool = False


def their_decoder(model: nn.Module, question: Question, cache: Any) -> tuple[Tensor, Any]:
    out = model(input_ids=question.ids, attention_mask=question.real, cache=cache, use_cache=True)
    return out.logits, out.cache


def their_encoder(model: nn.Module, question: Question, cache: Any) -> tuple[Tensor, Any]:
    return model(input_ids=question.ids, attention_mask=question.real).last_hidden_state, None


def their_pooler(model: nn.Module, question: Question, cache: Any) -> tuple[Tensor, Any]:
    return model(input_ids=question.ids, attention_mask=question.real).pooler_output, None


def their_translator(model: nn.Module, question: Question, cache: Any) -> tuple[Tensor, Any]:
    out = model(
        input_ids=question.source,
        attention_mask=question.real,
        decoder_input_ids=question.ids,
        cache=cache,
        use_cache=True,
    )
    return out.logits, out.cache


def our_stack(model: nn.Module, question: Question, cache: Any) -> Tensor:
    return model(question.ids, mask=_mask(question.real), cache=cache)


def our_translator(model: nn.Module, question: Question, cache: Any) -> Tensor:
    return model(question.ids, question.source, source_mask=_mask(question.real), cache=cache)


DECODER = Task(their_decoder, our_stack)
ENCODER = Task(their_encoder, our_stack, decodes=False)
POOLER = Task(their_pooler, our_stack, decodes=False)
TRANSLATOR = Task(their_translator, our_translator, reads_source=True)


def question(vocab: int, tokens: int) -> Question:
    generator = torch.Generator().manual_seed(1)
    ids, source = (torch.randint(FIRST_ID, vocab, (2, n), generator=generator) for n in (tokens, tokens + 3))
    return Question(ids, source)


def padded(whole: Question, task: Task, hidden: tuple[int, ...]) -> Question:
    """The same with some tokens of its second sequence called padding."""
    real = torch.ones_like(whole.source if task.reads_source else whole.ids, dtype=torch.bool)
    real[1, list(hidden)] = False
    return Question(whole.ids, whole.source, real)


def pieces(whole: Question) -> list[Question]:
    """What is read into a cache: all but the last tokens, then those in steps."""
    held = whole.ids.shape[1] - sum(STEPS)
    return [Question(ids, whole.source) for ids in whole.ids.split([held, *STEPS], dim=1)]


def _mask(real: Tensor | None) -> Tensor | None:
    """(B, S) as (B, heads, T, S)."""
    return None if real is None else real[:, None, None, :]
