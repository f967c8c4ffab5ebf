"""covan's passes over IR: one pass is one file named after it, and ``registry`` finds it by that name."""
