"""A compiled program against eager PyTorch, tensor by tensor: which action is the first to go wrong."""
