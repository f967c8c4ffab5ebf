"""Source frames of an operation: the user's own first, frames inside torch marked."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.proxy import TracerBase

from covan_mlir.provenance.model import Frame

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(__file__) + os.sep  # what wraps a builtin function
_MODULES = os.path.join(_TORCH, "nn", "modules", "")
_TRACING = tuple(os.path.join(_TORCH, *path) for path in (("export", ""), ("_export", "")))
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_SITE = sysconfig.get_path("purelib") + os.sep  # below the standard library's folder in some layouts
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_GENERATED = "<eval_with_key>"  # code of torch.fx, which nobody wrote


def in_order(stack_trace: str | None) -> list[Frame]:
    """Frames of ``node.meta["stack_trace"]``, outermost first."""
    return [
        Frame(file, int(line), function, file.startswith(_TORCH))
        for file, line, function in _FRAME.findall(stack_trace or "")
        if not file.startswith(_GENERATED)
    ]


def parse(stack_trace: str | None) -> tuple[Frame, ...]:
    """Frames of ``node.meta["stack_trace"]``: user's, innermost first, then torch's own, innermost first."""
    frames = in_order(stack_trace)[::-1]
    return tuple([f for f in frames if not f.internal] + [f for f in frames if f.internal])


def is_users(file: str) -> bool:
    """Whether a file is neither torch's, the standard library's nor this package's."""
    if file.startswith((_TORCH, _OWN, _GENERATED, "<frozen", "<string>")):
        return False
    return file.startswith(_SITE) or not file.startswith(_STDLIB)


def user_frame(error: BaseException) -> Frame | None:
    """The innermost frame of the model's own code on the way to an exception of `torch.export`."""
    frames = traceback.extract_tb(error.__traceback__)
    start = next((i for i, frame in enumerate(frames) if frame.filename.startswith(_TRACING)), len(frames))
    for frame in reversed(frames[start:]):
        if is_users(frame.filename) and frame.lineno is not None:
            return Frame(frame.filename, frame.lineno, frame.name)
    return None


def model_frames(summary: traceback.StackSummary) -> traceback.StackSummary:
    """Frames between tracing and the operation: the model's code, its helpers, ``forward`` of torch's modules."""
    start = next((i for i, frame in enumerate(summary) if frame.filename.startswith(_TRACING)), -1)
    kept = [
        frame
        for frame in summary[start + 1 :]
        if is_users(frame.filename) or (frame.name == "forward" and frame.filename.startswith(_MODULES))
    ]
    return traceback.StackSummary.from_list(kept)


@contextmanager
def whole_stacks() -> Iterator[None]:
    """While active, export records all frames of the user's code.

    By default torch keeps frames called ``forward`` only, which loses helper functions, and all of a plain
    function's frames.
    """
    tracer: Any = TracerBase
    own: Any = tracer.__dict__.get("_filter_traceback_frames")
    if own is None:  # another torch: keep what it records
        yield
        return
    tracer._filter_traceback_frames = lambda self, summary: model_frames(summary)
    try:
        yield
    finally:
        tracer._filter_traceback_frames = own
