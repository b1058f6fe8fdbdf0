"""From a resolved plan to torch modules: attention core, cache, sublayers, stacks and whole models."""
