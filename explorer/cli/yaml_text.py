"""Plain values as YAML that the blueprint loader reads back unchanged."""

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes a value that occurs twice twice: anchors would make a short file harder to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def yaml_text(value: Any) -> str:
    """Block style, with the innermost mappings and lists on one line."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
