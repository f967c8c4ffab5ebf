"""What the generator raises when it has no code for something; callers see a `Refusal`."""

from __future__ import annotations


class UnsupportedError(ValueError):
    """There is no code for this."""
