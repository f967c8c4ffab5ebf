"""The text of a pipeline, taken apart.

Grammar::

    pipeline := anchor "(" [element ("," element)*] ")"
    element  := name ["{" options "}"] ["(" [element ("," element)*] ")"]
    options  := (key "=" value | key) separated by spaces

What stands between ``//`` and the end of a line is a comment.
"""

import re
import typing
from dataclasses import dataclass


class PipelineError(ValueError):
    """A pipeline's text is wrong at ``offset``. ``str`` shows the place."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        start = text.rfind("\n", 0, offset) + 1
        line = text[start:].partition("\n")[0]
        super().__init__(f"{message}\n  {line}\n  {' ' * (offset - start)}^")
        self.message = message
        self.offset = offset


@dataclass(frozen=True)
class Element:
    """A pass with its options, or an op with what runs on it.

    Attributes:
        offset, options_offset: where its name and its options begin in the pipeline's text.
        options: what stands between the braces; None without braces.
        children: of an op; None for a pass.
        text: all of it, as written.
    """

    name: str
    offset: int
    options: str | None
    options_offset: int
    children: "tuple[Element, ...] | None"
    text: str


_NAME = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*")
_COMMENT = re.compile(r"//[^\n]*")


class Reader:
    """Reads a pipeline from left to right; ``at`` is how far it got."""

    def __init__(self, text: str) -> None:
        self.whole = text
        # Offsets stay those of the text that the user wrote.
        self.text = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
        self.at = 0

    def fail(self, message: str, offset: int | None = None) -> typing.NoReturn:
        """Raises a `PipelineError` at an offset, by default at the next character."""
        raise PipelineError(message, self.whole, self.at if offset is None else offset)

    def pipeline(self) -> Element:
        """The whole text: one op with what runs on it.

        Raises:
            PipelineError: it is something else.
        """
        element = self._element() if self.text.strip() else None
        if element is None or element.children is None or element.options is not None:
            self.fail("expected a pipeline wrapped in the op it runs on, such as builtin.module(cse)", 0)
        if self.at != len(self.text):
            self.fail("expected the end of the pipeline")
        return element

    def _peek(self, character: str) -> bool:
        return self.text[self.at : self.at + 1] == character

    def _skip_space(self) -> None:
        self.at = len(self.text) - len(self.text[self.at :].lstrip())

    def _element(self) -> Element:
        match = _NAME.match(self.text, self.at)
        if match is None:
            self.fail("expected the name of a pass or of an op")
        start, self.at = match.start(1), match.end()
        options, options_offset = None, self.at + 1
        if self._peek("{"):
            options = self._braces()
        children = None
        if self._peek("("):
            self.at += 1
            children = self._elements()
            if not self._peek(")"):
                self.fail("unbalanced '(' in the pipeline")
            self.at += 1
        text = self.text[start : self.at].strip()
        self._skip_space()
        return Element(match[1], start, options, options_offset, children, text)

    def _braces(self) -> str:
        depth, start = 1, self.at + 1
        self.at = start
        while depth:
            if self.at == len(self.text):
                self.fail("unbalanced '{' in the pipeline", start - 1)
            character = self.text[self.at]
            closing = self.text.find(character, self.at + 1) if character in "\"'" else -1
            if closing > 0:  # what is quoted does not nest
                self.at = closing
            depth += {"{": 1, "}": -1}.get(character, 0)
            self.at += 1
        return self.text[start : self.at - 1]

    def _elements(self) -> tuple[Element, ...]:
        elements: list[Element] = []
        self._skip_space()
        if self.at == len(self.text) or self._peek(")"):
            return ()
        while True:
            elements.append(self._element())
            if not self._peek(","):
                return tuple(elements)
            self.at += 1
