"""The blueprint language: strict YAML, changes, resolution to a plan, axes and combinations."""

from explorer.blueprint.schema import json_schema as json_schema
