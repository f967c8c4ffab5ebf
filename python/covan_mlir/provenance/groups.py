"""Groups: the actions of one call of a composite function, tied together (docs/provenance.md)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from covan_mlir.errors import TagError
from covan_mlir.provenance.words import checked, is_group

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager  # a context manager and a decorator: contextlib has no other name

PREFIX = "covan.group."
"""Of the keys in a node's annotations: one per call, so that groups nest; the value is the name, then tags."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_calls = itertools.count()


@overload
def group(name: str, *tags: str) -> _GeneratorContextManager[None]: ...
@overload
def group(name: Callable[_P, _R]) -> Callable[_P, _R]: ...
def group(name: Any, *tags: str) -> Any:
    """Tie the actions of a block of the model's code, or of each call of a function, together.

    ::

        def forward(self, x):
            with covan_mlir.group("attention", "audit:pii"):
                ...

        @covan_mlir.group
        def rotate(x): ...

        @covan_mlir.group("rotary", "hot")
        def rotate(x): ...

    ``group:attention`` then stands for the actions of all such blocks, ``group:attention@1`` for those of the second
    one, wherever a name is asked for. Outside `torch.export` it does nothing. Groups may nest.

    Args:
        name: of the group, or the function to decorate, whose name it takes.
        tags: for all of the group's actions.

    Raises:
        TagError: the name is empty, not printable, or holds an ``@``; or a tag is not one.
    """
    if callable(name):
        return group(getattr(name, "__name__", type(name).__name__).strip("<>"))(name)
    if not is_group(name):
        raise TagError(f"{name!r} is no name for a group: it is a printable text without '@' and blanks around it")
    if tags:
        tags = checked(tags)
    return _block([name, *tags])


@contextmanager
def _block(words: list[str]) -> Iterator[None]:
    if not exporting():
        yield
        return
    from torch.fx.traceback import annotate

    with annotate({f"{PREFIX}{next(_calls)}": words}):
        yield


def exporting() -> bool:
    """Whether this code runs because torch exports the model that it is part of."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_exporting())
