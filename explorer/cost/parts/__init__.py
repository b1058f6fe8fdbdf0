"""A plan as parts between two residual calls: each distinct one is looked at once, alone."""
