"""The lines of source that a model's actions stand on, with some around them, read from their files or as stubs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from covan_mlir.provenance.explain import short_files
from covan_mlir.provenance.model import Action

_AROUND = 3
_LARGEST = 1 << 22  # bytes of a file that is shown
_WIDEST = 400  # characters of a line


@dataclass(frozen=True)
class ListingRow:
    """One row of the listing.

    Attributes:
        file: index into `Listing.files`.
        line: 1-based; 0 for the head of a file, -1 for lines left out.
        text: None where the file does not say.
    """

    file: int
    line: int
    text: str | None = None


@dataclass(frozen=True)
class File:
    """A source file.

    Attributes:
        short: the shortest end of the path that no other file of the listing has.
        note: why its lines are not shown, or are not to be trusted; empty if they are.
    """

    path: str
    short: str
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """Files in the order in which the model first uses them, their rows, and the row of each line."""

    files: tuple[File, ...]
    rows: tuple[ListingRow, ...]
    index: Mapping[tuple[str, int], int]

    def of(self, action: Action) -> list[int]:
        """The rows of an action's own frames, innermost first."""
        return [self.index[f.file, f.line] for f in action.frames if not f.internal]


def listing(actions: Sequence[Action], *, read: bool = True, written: float | None = None) -> Listing:
    """The lines of ``actions``.

    An artifact says which files these are, and whoever wrote it may lie: only Python sources are read.

    Args:
        read: show the text of the lines.
        written: when the program was compiled, in seconds since the epoch; files changed later are marked.
    """
    lines: dict[str, set[int]] = {}
    functions: dict[tuple[str, int], str] = {}
    for action in actions:
        for frame in action.frames:
            if not frame.internal:
                lines.setdefault(frame.file, set()).add(frame.line)
                functions.setdefault((frame.file, frame.line), frame.function)
    short = short_files(lines)
    files: list[File] = []
    rows: list[ListingRow] = []
    index: dict[tuple[str, int], int] = {}
    for number, (path, used) in enumerate(lines.items()):
        text: list[str] | None = None
        note = "source was left out"
        if read:
            text, note = _read(path, written)
        if text is not None and max(used) > len(text):
            note, text = f"it has {len(text)} lines now, and had more", None
        files.append(File(path, short[path], note))
        rows.append(ListingRow(number, 0))
        shown = sorted(used) if text is None else _around(used, len(text))
        before = 0
        for line in shown:
            if line > before + 1:
                rows.append(ListingRow(number, -1))
            if line in used:
                index[path, line] = len(rows)
            stub = f"in {functions[path, line]}" if line in used and functions[path, line] else None
            rows.append(ListingRow(number, line, stub if text is None else text[line - 1][:_WIDEST]))
            before = line
    return Listing(tuple(files), tuple(rows), index)


def _around(lines: Iterable[int], last: int) -> list[int]:
    return sorted({i for line in lines for i in range(max(1, line - _AROUND), min(last, line + _AROUND) + 1)})


def _read(path: str, written: float | None) -> tuple[list[str] | None, str]:
    """The lines of a file, or None; and what is wrong with it."""
    if not path.endswith(".py"):
        return None, "only .py files are shown"
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode):
            return None, "it is no file"
        if facts.st_size > _LARGEST:
            return None, f"it is larger than {_LARGEST >> 20} MiB"
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        return None, f"it cannot be read here: {getattr(error, 'strerror', None) or error}"
    changed = written is not None and facts.st_mtime > written
    # As Python counts lines: form feeds and the like end none.
    return text.split("\n"), "it was changed after the program was compiled" if changed else ""
