from explorer import Position


class NoPosition(Position):
    """Nothing: a causal mask alone tells positions apart. Haviv et al. 2022, arXiv:2203.16634 (NoPE)."""
