"""The page of published models is what the command prints."""

from __future__ import annotations

from pathlib import Path

import explorer
from explorer.report.markdown import markdown
from explorer.study.comparing import compare, join

ROOT = Path(__file__).parents[2]


def test_page_of_published_models_is_what_compare_prints() -> None:
    """`explorer compare blueprints/published/*.yaml --format md`, without the lines that name this machine."""
    files = sorted((ROOT / "blueprints" / "published").glob("*.yaml"))
    result = join(list(compare([explorer.load(file) for file in files], lambda *_: None)))
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    assert markdown(result.to_dict()) in page, "print it again with explorer compare"
