"""What torch.export says of sizes that ``dynamic_shapes`` leaves open and the model does not, and which line it is."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from typing import Any

from covan_mlir.frontend import frames
from covan_mlir.provenance.model import Frame

_VIOLATED = "Constraints violated"
_FIXES = "Suggested fixes:"
_FIXED = re.compile(r"You marked (.+?) as dynamic but your code specialized it to be a constant \((.+?)\)")
_GUARDED = re.compile(r"Not all values of (.+?) in the specified range .*? satisfy the generated guard (.+)")
_SIZE = re.compile(r"L\['(\w+)'\](\S*?)\.size\(\)\[(\d+)\]")
_TOLD = "torch.fx.experimental.symbolic_shapes"
_GUARD = re.compile(r"^\S+ (.*) \[guard added\]")


def fixed_sizes(error: BaseException) -> str | None:
    """Why sizes cannot be open, and how they can be given instead; None of another error."""
    text = str(error)
    if not text.startswith(_VIOLATED):
        return None
    reasons, _, rest = text.partition(_FIXES)
    whys = [_plainly(line.strip()[2:]) for line in reasons.splitlines() if line.strip().startswith("- ")]
    fixes = [line.strip() for line in rest.split("\n\n")[0].splitlines() if line.strip()]
    told = "; ".join(whys) or "sizes depend on each other"
    return f"{told}. {'Say so in dynamic_shapes: ' + ', '.join(fixes) if fixes else 'Say so in dynamic_shapes'}"


def _plainly(reason: str) -> str:
    """A reason in the words of the model's own code."""
    if fixed := _FIXED.search(reason):
        return f"{fixed[1]} is always {fixed[2]}"
    if guarded := _GUARDED.search(reason):
        reason = f"of all {guarded[1]} has to hold {guarded[2]}"
    return _SIZE.sub(r"\1\2.shape[\3]", reason).rstrip(".")


def fixing_line(export: Callable[[], Any]) -> Frame | None:
    """The user's line that first makes a size depend on another one or be a number, by exporting once more.

    Args:
        export: fails with such an error.
    """
    seen = _Guards()
    log = logging.getLogger(_TOLD)
    level, passed_on, handlers = log.level, log.propagate, log.handlers
    log.handlers = [seen]
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        export()
    except Exception:  # the one that is told of
        return seen.line
    finally:
        log.handlers = handlers
        log.setLevel(level)
        log.propagate = passed_on
    return None


class _Guards(logging.Handler):
    """Hears of each guard while the model's code runs that asks for it: torch keeps no such line in this mode.

    Attributes:
        line: where the first equality was asked for, or None.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.line: Frame | None = None

    def emit(self, record: logging.LogRecord) -> None:
        guard = _GUARD.match(record.getMessage())
        if self.line is not None or guard is None or not guard[1].startswith("Eq("):
            return
        self.line = next(
            (
                Frame(frame.filename, frame.lineno, frame.name)
                for frame in reversed(frames.model_frames(traceback.extract_stack()))
                if frames.is_users(frame.filename) and frame.lineno is not None
            ),
            None,
        )
