"""What components there are: hooks, kinds and their menus, signatures as schemas, loading and provenance."""

from explorer.registry.chosen import Chosen as Chosen
from explorer.registry.chosen import Maker as Maker
from explorer.registry.loading import load_registry as load_registry
from explorer.registry.registry import Component as Component
from explorer.registry.registry import Registry as Registry
