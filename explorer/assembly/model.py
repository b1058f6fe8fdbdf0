"""Whole models, and one block that can be called alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.cache import Cache
from explorer.assembly.embedding import Embedding
from explorer.assembly.stack import Stack
from explorer.assembly.wiring import Pass
from explorer.errors import UsageError


class Model(nn.Module):
    """A stack, or an encoder and a decoder, with embedding and head where there is a vocabulary.

    `stack` makes the output: the only one, or the decoder.
    """

    def __init__(
        self, stack: Stack, *, encoder: Stack | None, embedding: Embedding | None, head: nn.Module | None
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder
        self.stack = stack
        self.head = head

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        *,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        """Token ids (B, T) -> logits (B, T, vocab), or what the head makes; without a vocabulary (B, T, dim) -> same.

        source: what the encoder reads, (B, S) or (B, S, dim); not needed once the cache holds its keys and values.
        mask: bool, True = may attend, broadcastable to (B, heads, T, S); source_mask: the same over the source.
        cache: of `make_cache`; what is given follows the tokens it holds.
        Raises: UsageError for a call that the model cannot answer.
        """
        self.stack.intake.check(mask, cache, source_mask)
        if cache is not None:
            cache.admit(*ids.shape[:2])
        offset = 0 if cache is None else cache.offset
        x = self.stack.embed(ids, self.embedding, offset)  # (B, T, dim)
        read = self._read(source, source_mask, cache)
        run = Pass(
            context=self.stack.intake.context(x, read, cache),
            mask=mask,
            context_mask=source_mask,
            cache=cache,
            ids=None if self.embedding is None else ids,
        )
        h = self.stack(x, run)  # (B, T, dim)
        if cache is not None:
            cache.advance(ids.shape[1])
        return h if self.head is None else self.head(h)

    def make_cache(
        self, batch: int, capacity: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Cache:
        """An empty cache for `batch` sequences of `capacity` tokens; dtype and device default to those of what is kept.

        Raises: RefusedError where the stack keeps none.
        """
        return self.stack.intake.make_cache(batch, capacity, dtype, device)

    def _read(self, source: Tensor | None, source_mask: Tensor | None, cache: Cache | None) -> Tensor | None:
        """The source as the encoder gives it, (B, S, dim)."""
        if self.encoder is None:
            for name, given in (("source", source), ("source_mask", source_mask)):
                if given is not None:
                    raise UsageError(f"this model has no encoder that could read a `{name}`")
            return None
        if source is None or (cache is not None and cache.holds_source):
            return None
        self.encoder.intake.check(source_mask)
        ids = None if self.embedding is None else source
        return self.encoder(self.encoder.embed(source, self.embedding, 0), Pass(mask=source_mask, ids=ids))


class BlockModule(nn.Module):
    """One layer of a stack, with what lies around it in a model so that it can be called: positions, enter and leave.

    `block` alone is the layer; what else there is belongs to the model.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    @property
    def block(self) -> Block:
        """The layer."""
        (block,) = self.stack.layers
        assert isinstance(block, Block), block
        return block

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        *,
        ids: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T, dim) -> (B, T, dim). context (B, S, dim): what a decoder block's cross-attention reads."""
        intake = self.stack.intake
        intake.check(mask, cache, context_mask)
        if cache is not None:
            cache.admit(*x.shape[:2])
        intake.check_context(context, context_mask)
        read = intake.context(x, context, cache)
        y = self.stack(x, Pass(read, mask, context_mask, cache, ids))
        if cache is not None:
            cache.advance(x.shape[1])
        return y

    def make_cache(
        self, batch: int, capacity: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Cache:
        """An empty cache for this block's attentions; see `Model.make_cache`."""
        return self.stack.intake.make_cache(batch, capacity, dtype, device)
