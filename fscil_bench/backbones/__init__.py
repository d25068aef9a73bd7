"""Backbones: networks, training recipes, the trainer, and the store of trained ones."""
