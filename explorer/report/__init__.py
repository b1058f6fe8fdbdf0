"""From a result document (DESIGN section 8: plain dicts and lists) to text: terminal, Markdown, CSV, JSON. No torch."""
