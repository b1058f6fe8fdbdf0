"""Models of Hugging Face: their configs as blueprints, their weights as ours."""
