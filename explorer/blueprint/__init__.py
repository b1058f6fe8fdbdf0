"""The blueprint language: strict YAML, changes, resolution to a plan, axes and combinations."""
