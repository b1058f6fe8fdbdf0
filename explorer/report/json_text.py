"""A result as one JSON document, keys in the order of DESIGN section 8."""

import json

from explorer.report.document import Document


def json_text(document: Document) -> str:
    """The document, indented by two blanks.

    Raises: ValueError where a number is not finite: JSON has no word for it.
    """
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
