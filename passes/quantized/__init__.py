"""Numbers that stand for steps of a scale, as linalg has them."""
