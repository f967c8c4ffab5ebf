"""What runs after compilation: devices, calling. Needs `iree-base-runtime` and numpy; torch only for torch tensors."""
