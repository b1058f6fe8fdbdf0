"""A model of transformers, ours with its weights, and what both say to the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import explorer
from tests.parity.tasks import DECODER, MIDDLE, Question, Task, padded, pieces, question
from tests.parity.weights import randomise

VOCAB = 37


@dataclass(frozen=True, eq=False)
class Family:
    """One architecture, said by a blueprint and by a config of transformers.

    options: of their constructor, beside the config. masked: whether a mask may be given; hidden: what it hides.
    tokens: of a sequence, more than any window. prepare: gives other values to what of theirs cannot be random.
    """

    name: str
    blueprint: Mapping[str, Any]
    architecture: str
    config: Mapping[str, Any]
    task: Task = DECODER
    options: Mapping[str, Any] = field(default_factory=dict)
    masked: bool = True
    hidden: tuple[int, ...] = MIDDLE
    tokens: int = 19
    prepare: Callable[[nn.Module], None] = lambda model: None

    def __str__(self) -> str:
        return self.name


def ours(family: Family) -> nn.Module:
    return explorer.build(explorer.load({"vocab": VOCAB, **family.blueprint}), device="cpu").eval()


class Pair:
    """Both models of a family in evaluation mode with equal weights; each answer is (theirs, ours)."""

    def __init__(self, family: Family) -> None:
        self.family, self.task = family, family.task
        made = getattr(transformers, family.architecture)
        # Their eager attention adds the least finite number where a key is hidden, so a query that sees no key averages
        # all values; ours gives zeros. No query of these tests is without a key.
        config = made.config_class(vocab_size=VOCAB, **family.config, attn_implementation="eager")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.theirs = made(config, **family.options).eval()
        randomise(self.theirs)
        family.prepare(self.theirs)
        self.ours = ours(family)
        explorer.load_weights(self.ours, self.theirs.state_dict())

    @cached_property
    def question(self) -> Question:
        return question(VOCAB, self.family.tokens)

    @torch.no_grad()
    def prefill(self) -> tuple[Tensor, Tensor]:
        theirs, _ = self.task.theirs(self.theirs, self.question, None)
        return theirs, self.task.ours(self.ours, self.question, None)

    @torch.no_grad()
    def decode(self) -> tuple[Tensor, Tensor]:
        """Prefill into a cache, then the last tokens in steps."""
        cache, past = self.ours.make_cache(2, self.family.tokens), None
        theirs, ours = [], []
        for piece in pieces(self.question):
            answer, past = self.task.theirs(self.theirs, piece, past)
            theirs.append(answer)
            ours.append(self.task.ours(self.ours, piece, cache))
        return torch.cat(theirs, dim=1), torch.cat(ours, dim=1)

    @torch.no_grad()
    def padded(self) -> tuple[Tensor, Tensor]:
        """What is said at real tokens where some of the second sequence are padding."""
        asked = padded(self.question, self.task, self.family.hidden)
        theirs, _ = self.task.theirs(self.theirs, asked, None)
        ours = self.task.ours(self.ours, asked, None)
        if self.task.reads_source or theirs.ndim == 2:
            return theirs, ours
        return theirs[asked.real], ours[asked.real]

    def gradients(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Of each of our parameters, by name; of the input table too."""
        theirs, _ = self.task.theirs(self.theirs, self.question, None)
        ours = self.task.ours(self.ours, self.question, None)
        weights = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2))
        for model, answer in ((self.theirs, theirs), (self.ours, ours)):
            model.zero_grad()
            (answer * weights).sum().backward()
        expected = deepcopy(self.ours)
        explorer.load_weights(expected, {n: _gradient(t) for n, t in self.theirs.state_dict(keep_vars=True).items()})
        pairs = zip(expected.named_parameters(), self.ours.parameters(), strict=True)
        return {name: (theirs.detach(), _gradient(parameter)) for (name, theirs), parameter in pairs}


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
