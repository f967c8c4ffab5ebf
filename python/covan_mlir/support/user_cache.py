"""Where covan keeps for later processes what takes long to find out."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """The user's cache folder for covan, which need not exist.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "covan"
