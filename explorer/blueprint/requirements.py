"""``requires: ["dist>=1.0"]``: checks what is installed, and installs nothing."""

from __future__ import annotations

import importlib.metadata

from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import Node, ScalarNode, SequenceNode, child, describe


def check_requires(node: Node, reader: Reader) -> None:
    """Note every requirement that is not met."""
    if isinstance(node, ScalarNode) and node.value is None:
        return
    if not isinstance(node, SequenceNode):
        reader.problem(node.where, "requires", f'must be a list such as ["dist>=1.0"], not {describe(node)}')
        return
    for index, item in enumerate(node.items):
        fault = _fault(item)
        if fault:
            reader.problem(item.where, child("requires", index), fault)


def _fault(item: Node) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement

    text = item.value if isinstance(item, ScalarNode) else None
    if not isinstance(text, str):
        return f'must be a requirement such as "dist>=1.0", not {describe(item)}'
    try:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            return None
        version = importlib.metadata.version(requirement.name)
    except InvalidRequirement as error:
        return f"{text!r} is no requirement: {str(error).splitlines()[0]}"
    except importlib.metadata.PackageNotFoundError:
        return f'{text} is required but not installed; run `pip install "{text}"`'
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{text} is required but {requirement.name} {version} is installed"
    return None
