"""Diagnostics of ``covan-opt``: how they are shown and checked."""

import contextlib
import errno
import os
import re
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.prov_locations import find_file

_MARK = re.compile(
    r"expected-(?P<severity>error|warning|note|remark)(?P<re>-re)?"
    r"(?:@(?P<where>[+-][0-9]{1,9}|above|below|unknown))?"
    r"\s*(?P<count>[0-9]{1,9}\+?|\+|\*)?\s*\{\{(?P<message>.*)\}\}\s*$"
)
_LONGEST_LINE = 2000
_LARGEST_FILE = 16 << 20  # bytes of a file that a location names
_PATIENCE = 10.0  # seconds of CPU time for the regexes of one part of the input
_MOST_NOTES = 20
# A mark whose braces are missing would otherwise be a comment that checks nothing.
_BROKEN_MARK = re.compile(r"expected-(?:error|warning|note|remark)(?:-re)?\b")


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic, copied out of MLIR's, which lives only while it is reported. Line 0: no location."""

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    notes: "tuple[Diagnostic, ...]" = ()


def copy_diagnostic(diagnostic: Any, name: str) -> Diagnostic:
    """Copies an ``ir.Diagnostic``. MLIR calls unnamed input ``-``; ``name`` is what the user calls it."""
    notes = tuple(copy_diagnostic(note, name) for note in diagnostic.notes)
    severity = diagnostic.severity.name.lower()
    file = find_file(diagnostic.location)
    if file is None:
        return Diagnostic(severity, diagnostic.message, notes=notes)
    filename = name if file.filename == "-" else file.filename
    return Diagnostic(severity, diagnostic.message, filename, file.start_line, file.start_col, notes)


class Sources:
    """The lines that diagnostics point at: of the input, and of any other file that can be read."""

    def __init__(self, name: str, text: str) -> None:
        self._lines: dict[str, list[str]] = {name: text.split("\n")}

    def line(self, file: str, number: int) -> str | None:
        """Line ``number``, from 1, or None if there is none."""
        if file not in self._lines:
            try:
                self._lines[file] = _text(file).split("\n")
            except (OSError, ValueError):
                self._lines[file] = []
        lines = self._lines[file]
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else None


def _text(path: str) -> str:
    """Of a file that a location names.

    Raises:
        OSError: it cannot be read, or it is none to read: whoever wrote the IR may have named a pipe, or a device
            without end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST_FILE:
            raise OSError(errno.EINVAL, "no file of source lines", path)
        return file.read().decode("utf-8", "replace")


def shortened(text: str, limit: int = 4000) -> str:
    """A text without its middle, where it is longer than people read: IR may have constants of megabytes."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]} [... {len(text) - limit * 11 // 12} characters ...] {text[-limit // 4 :]}"


def render(diagnostic: Diagnostic, sources: Sources) -> str:
    """``file:line:col: error: message``, the source line with a caret, and the notes likewise."""
    if diagnostic.line or diagnostic.column or diagnostic.file:
        place = f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}"
    else:
        place = "<unknown>:0"
    text = f"{place}: {diagnostic.severity}: {shortened(diagnostic.message)}\n"
    source = sources.line(diagnostic.file, diagnostic.line) if diagnostic.line else None
    if source is not None and len(source) <= _LONGEST_LINE:
        text += source + "\n"
        # Tabs are kept so that the caret stands under its character however wide the terminal makes them.
        indent = "".join("\t" if c == "\t" else " " for c in source[: max(diagnostic.column - 1, 0)])
        text += f"{indent}^\n"
    return text + "".join(render(note, sources) for note in diagnostic.notes[:_MOST_NOTES])


@dataclass
class Expectation:
    """One ``expected-error {{...}}``. ``target`` is the line it is about, None for ``@unknown``."""

    severity: str
    line: int
    target: int | None
    at_least: int
    at_most: float
    message: str
    is_regex: bool
    pattern: re.Pattern[str] = field(init=False)
    seen: int = 0

    def __post_init__(self) -> None:
        pieces = re.split(r"\{\{(.*?)\}\}", self.message) if self.is_regex else [self.message]
        # In the regex form, plain text holds {{pattern}}s: the odd pieces of the split.
        self.pattern = re.compile("".join(p if i % 2 else re.escape(p) for i, p in enumerate(pieces)))

    def matches(self, diagnostic: Diagnostic, name: str) -> bool:
        """Whether ``diagnostic`` is the expected one, whatever its severity."""
        here = diagnostic.line if diagnostic.file == name and diagnostic.line else None
        elsewhere = here is None and bool(diagnostic.line)
        return here == self.target and not elsewhere and bool(self.pattern.search(diagnostic.message))


def _counts(text: str | None) -> tuple[int, float]:
    if text is None:
        return 1, 1
    if text == "*":
        return 0, float("inf")
    if text == "+":
        return 1, float("inf")
    number = int(text.rstrip("+"))
    return number, float("inf") if text.endswith("+") else number


def parse_expectations(text: str, name: str) -> tuple[list[Expectation], list[Diagnostic]]:
    """The expectations written in ``text``, and errors about those that are malformed."""
    expectations: list[Expectation] = []
    errors: list[Diagnostic] = []
    last_plain = 0
    for_next: list[Expectation] = []
    for number, line in enumerate(text.split("\n"), 1):
        mark = _MARK.search(line)
        if mark is None:
            if _BROKEN_MARK.search(line):
                errors.append(Diagnostic("error", "malformed expectation, see --help", name, number, 1))
            for expectation in for_next:
                expectation.target = number
            for_next = []
            last_plain = number
            continue
        where = mark["where"]
        target: int | None = number
        if where == "unknown":
            target = None
        elif where == "above":
            target = last_plain
        elif where not in (None, "below"):
            target = number + int(where)
        try:
            expectation = Expectation(
                mark["severity"], number, target, *_counts(mark["count"]), mark["message"], bool(mark["re"])
            )
        except re.error as error:
            errors.append(Diagnostic("error", f"the expected regex is malformed: {error}", name, number, 1))
            continue
        expectations.append(expectation)
        if where == "below":
            for_next.append(expectation)
    return expectations, errors


class _ImpatientError(Exception):
    """The regexes took too long."""


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Raises `_ImpatientError` in what lasts longer than `_PATIENCE`: the time of a regex can double with each
    character. In the main thread only, which signals reach."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _ImpatientError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def check(diagnostics: list[Diagnostic], text: str, name: str) -> list[Diagnostic]:
    """Compares diagnostics with what ``text`` expects; returns an error for each difference."""
    expectations, errors = parse_expectations(text, name)
    try:
        with _patience():
            for diagnostic in diagnostics:
                for one in (diagnostic, *diagnostic.notes):
                    # MLIR attaches the whole op to errors; mlir-opt turns that off when it verifies diagnostics.
                    if not one.message.startswith("see current operation:"):
                        _match(one, expectations, name, errors)
    except _ImpatientError:
        return [Diagnostic("error", f"the expected regexes take longer than {_PATIENCE:g} s", name)]
    for expectation in expectations:
        if expectation.seen < expectation.at_least:
            count = "" if expectation.at_least == 1 else f" {expectation.seen} of {expectation.at_least} times"
            errors.append(
                Diagnostic(
                    "error",
                    f'expected {expectation.severity} "{expectation.message}" was not produced'
                    + (f", only{count}" if count else ""),
                    name,
                    expectation.line,
                    1,
                )
            )
    return errors


def _match(diagnostic: Diagnostic, expectations: list[Expectation], name: str, errors: list[Diagnostic]) -> None:
    near = None
    for expectation in expectations:
        if not expectation.matches(diagnostic, name):
            continue
        if expectation.severity != diagnostic.severity:
            near = expectation
        elif expectation.seen < expectation.at_most:
            expectation.seen += 1
            return
    message = f"unexpected {diagnostic.severity}: {diagnostic.message}"
    if near is not None:
        message = f"'{diagnostic.severity}' emitted where '{near.severity}' is expected: {diagnostic.message}"
    errors.append(Diagnostic("error", message, diagnostic.file, diagnostic.line, diagnostic.column))


class Collector:
    """Collects the diagnostics of a context, from attachment until ``detach``."""

    def __init__(self, context: ir.Context, name: str) -> None:
        self.diagnostics: list[Diagnostic] = []
        # Errors would otherwise go into the text of exceptions only.
        context.emit_error_diagnostics = True

        def collect(diagnostic: Any) -> bool:
            self.diagnostics.append(copy_diagnostic(diagnostic, name))
            return True

        self._handler = context.attach_diagnostic_handler(collect)

    def detach(self) -> None:
        """Stops collecting."""
        self._handler.detach()
