"""Which part of a model an operator belongs to, in backward too: autograd numbers its nodes as they are made."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Labels:
    """The label of what runs now: forward that of the innermost `within`, backward that under which a node was made.

    When two gradients of one tensor meet, the engine adds them right after the node that gave the later one, under the
    label of that node. Without any node, and where a gradient is put away, the label is "".
    """

    def __init__(self) -> None:
        self._label = ""
        self._starts, self._labels = [0], [""]  # nodes from this number on were made under this label
        self._again: str | None = None
        self._around = ""

    @contextmanager
    def within(self, label: str) -> Iterator[None]:
        """What runs inside, and the backward of what runs inside, gets this label."""
        before, again = self._label, self._again
        if in_backward():
            self._again = label  # a forward that a checkpoint computes again
        self._begin(label)
        try:
            yield
        finally:
            self._begin(before)
            self._again = again

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A backward that a node runs inside its own: nodes that were made without a label get that of the outer."""
        before = self._around
        self._around = self.now() if in_backward() else ""
        try:
            yield
        finally:
            self._around = before

    def now(self) -> str:
        """The label of an operator that is called now."""
        if not in_backward():
            return self._label
        if self._again is not None:
            return self._again
        node = torch._C._current_autograd_node()
        return "" if node is None else self._of(node)

    def _begin(self, label: str) -> None:
        self._label = label
        number = torch._C._autograd._get_sequence_nr()
        if self._starts[-1] == number:
            self._labels[-1] = label
        else:
            self._starts.append(number)
            self._labels.append(label)

    def _of(self, node: Any) -> str:
        number = node._sequence_nr()
        if number >= _UNNUMBERED:
            return self._around
        return self._labels[bisect_right(self._starts, number) - 1] or self._around


_UNNUMBERED = 1 << 62
"""Nodes that put a gradient in its place have the highest number there is."""


def in_backward() -> bool:
    """Whether the autograd engine is at work."""
    return torch._C._current_graph_task_id() != -1
