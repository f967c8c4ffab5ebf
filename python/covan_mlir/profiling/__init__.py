"""Profiles by source: time per site, joined exactly to actions, modules and lines (docs/profiling.md)."""
