"""Rewrites of the exported graph, before it is imported: what the lowerings underneath get wrong, said another way."""
