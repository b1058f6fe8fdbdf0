"""Names of components and packages: what a blueprint and a command line can hold without quotes."""

from __future__ import annotations

import re

from explorer.registry.words import reads_as_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def name_fault(name: object) -> str | None:
    """Why this cannot name a component or a package, or None."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is no name: use letters, digits, '_', '-' and '.', a letter first"
    return None if reads_as_text(name) else f"{name!r} is no name: YAML reads it as another value"
