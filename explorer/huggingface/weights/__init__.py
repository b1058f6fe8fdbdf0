"""Weights of Hugging Face in models of ours: tables of names, one for each family of models."""
