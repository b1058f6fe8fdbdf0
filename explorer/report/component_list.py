"""All components of a registry as GitHub Markdown: what each computes and what may be written for it."""

import re
from collections.abc import Iterator

from explorer.registry.kinds import KINDS
from explorer.registry.registry import Component, Registry
from explorer.report.markdown import escaped

_ARXIV = re.compile(r"arXiv:\d{4}\.\d{4,5}")


def component_list(registry: Registry) -> str:
    """A heading and a table for each kind."""
    return "\n\n".join("\n".join(_table(kind, registry)) for kind in KINDS) + "\n"


def _table(kind: str, registry: Registry) -> Iterator[str]:
    yield f"## {kind}"
    yield ""
    yield "| name | what it computes, and who says so | parameters |"
    yield "| --- | --- | --- |"
    for component in registry.components(kind):
        yield f"| `{component.label}` | {_said(component)} | {_parameters(component)} |"


def _said(component: Component) -> str:
    """The first paragraph; where it names no paper, those that the rest of the docstring names."""
    papers = dict.fromkeys(_ARXIV.findall(component.doc))
    text = component.summary
    if papers and not _ARXIV.search(text):
        text = f"{text} ({', '.join(papers)})"
    return escaped(text).replace("\\`", "`")  # docstrings mark code as Markdown does


def _parameters(component: Component) -> str:
    """`kv_heads`, required ones in bold."""
    parameters = component.schema.parameters.values()
    return ", ".join(f"**`{p.name}`**" if p.required else f"`{p.name}`" for p in parameters)
