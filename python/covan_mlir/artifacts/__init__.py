"""What is kept of a compiled model: the ``.covan`` file, its schema, the signature of a call."""
