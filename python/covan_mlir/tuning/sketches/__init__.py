"""Sketches: the structures that a chain's loop nest can have, derived by rules (Zheng et al. 2020, section 4)."""
