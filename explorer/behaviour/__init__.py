"""How a model behaves in training: losses, and what is seen of gradients and activations by depth."""
