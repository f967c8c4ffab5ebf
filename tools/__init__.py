"""covan's command lines. Thin: what they do is done by the packages below them."""
