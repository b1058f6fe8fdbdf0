"""How long a block takes on the device at hand: clocks, interleaved rounds, statistics."""
