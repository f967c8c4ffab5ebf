"""Which sizes a model was often called with, kept on disk for the next process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from covan_mlir.support import user_cache, whole_file

log = logging.getLogger(__name__)

FILES = 64
"""Models that are remembered, at most."""
ENTRIES = 64
"""Sizes of one model that are remembered, at most."""

Sizes = tuple[int, ...]


class LearnedSizes:
    """How often a model was called with sizes of its open dimensions.

    Args:
        model: text that tells the model from others.
        folder: where files are; None: the user's cache.
    """

    def __init__(self, model: str, folder: Path | None = None) -> None:
        self._folder = folder if folder is not None else _default()
        name = hashlib.sha256(model.encode()).hexdigest()[:32]
        self._path = self._folder / f"{name}.json" if self._folder is not None else None

    def read(self) -> dict[Sizes, int]:
        """The sizes, most frequent first; none if nothing is known, or the file holds something else."""
        if self._path is None:
            return {}
        try:
            rows = msgspec.json.decode(self._path.read_bytes(), type=list[tuple[Sizes, int]])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("what was learned of sizes is not used: %s: %s", self._path, error)
            return {}
        return dict(rows[:ENTRIES])

    def write(self, counts: Mapping[Sizes, int]) -> None:
        """Keep the most frequent sizes. The oldest files of other models go where there are too many."""
        if self._path is None or self._folder is None:
            return
        rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:ENTRIES]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            whole_file.write(self._path, json.dumps(rows).encode(), 0o600)
            files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in files[FILES:]:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        except OSError as error:
            log.warning("what was learned of sizes cannot be kept: %s", error)


def _default() -> Path | None:
    try:
        return user_cache.folder() / "sizes"
    except RuntimeError as error:
        log.warning("what is learned of sizes is not kept: %s", error)
        return None
