"""What a config says, family by family: each function turns a reader of it into blueprint fields."""
