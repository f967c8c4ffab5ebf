"""What the machine that programs run on has and how fast it is: read, measured once, kept, overridable."""
