"""What kernels of matrix products and convolutions share on every target."""
