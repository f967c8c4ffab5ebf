"""What the machine that programs run on can do: read, measured once, kept, overridable."""
