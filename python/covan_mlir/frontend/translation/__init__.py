"""What frontends share that translate another framework's graphs, operation by operation, into calls of torch."""
