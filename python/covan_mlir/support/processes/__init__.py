"""Processes of our own that do what may fail for good: how they are started, spoken with, stopped, and how they end."""
