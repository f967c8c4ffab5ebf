"""Operators of the user's own on tensors of the source model, see docs/attaching.md."""
