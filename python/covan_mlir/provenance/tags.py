"""Tags: the user's own words on parts of a model, carried by every site that does them (docs/provenance.md)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType

from covan_mlir.errors import TagError
from covan_mlir.provenance.groups import exporting
from covan_mlir.provenance.model import LineageData
from covan_mlir.provenance.words import checked

_active: ContextVar[tuple[TagRule, ...]] = ContextVar("covan_tags", default=())


class TagRule:
    """Tags for all that a name stands for; `tag` makes it.

    As a context manager it holds for the compilations inside.

    Attributes:
        what: a name, module path, group or source line; see `Lineage.where`.
        tags: the tags.
    """

    def __init__(self, what: str, tags: tuple[str, ...]) -> None:
        self.what = what
        self.tags = tags
        self._used = False

    def __enter__(self) -> TagRule:
        self._used = True
        if exporting():  # the compilation that exports the model has its rules already: this one would be lost
            raise TagError(f"{self!r} inside the model's code: write 'with covan_mlir.group(name, *tags)' there")
        _active.set((*_active.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _active.set(_active.get()[:-1])

    def __repr__(self) -> str:
        return f"tag({', '.join(map(repr, (self.what, *self.tags)))})"

    def __del__(self) -> None:
        # As for a coroutine that nobody awaits: a call on a line of its own looks as if it did something.
        if not getattr(self, "_used", True):
            warnings.warn(
                f"{self!r} had no effect: compile inside 'with tag(...):', or pass compile_module(tags=[tag(...)])",
                RuntimeWarning,
                stacklevel=2,
            )


def tag(what: str, *tags: str) -> TagRule:
    """Tag what a name of the model stands for, in compilations to come.

    ::

        with covan_mlir.tag("blocks.0", "audit:pii"):
            exe = covan_mlir.compile_module(model, args)
        exe = covan_mlir.compile_module(model, args, tags=[covan_mlir.tag("blocks.0", "audit:pii")])
        exe = covan_mlir.compile_module(model, args, tags={"blocks.0": ["audit:pii"]})

    `Lineage.tag` tags a program that is compiled already; `covan_mlir.group` tags from inside the model's code.

    Args:
        what: an action's name, a module path, a group or a source line; see `Lineage.where`.
        tags: printable texts without blanks around them, such as ``audit:pii``.

    Raises:
        TagError: ``what`` is no text, or a tag is none, empty, or not printable. (A name that the model does not
            have is an error of ``compile_module``.)
    """
    if not isinstance(what, str):
        raise TagError(f"tag takes a name, module path or source line first, not a {type(what).__name__}")
    return TagRule(what, checked(tags))


Tags = Mapping[str, Iterable[str]] | Iterable[TagRule]
"""What `compile_module` takes: tags by name, or rules."""


def rules(given: Tags | None) -> tuple[TagRule, ...]:
    """The rules in force: those of the enclosing ``with tag(...)``, then the given ones.

    Raises:
        TagError: ``given`` is neither a mapping from names to tags nor a sequence of rules.
    """
    return (*_active.get(), *_rules(given))


def _rules(given: Tags | None) -> Iterable[TagRule]:
    if isinstance(given, Mapping):
        for what, texts in given.items():
            yield _spent(tag(what, *([texts] if isinstance(texts, str) else texts)))
    else:
        for rule in given or ():
            if not isinstance(rule, TagRule):
                raise TagError(
                    f"tags is {{'blocks.0': ['audit:pii']}} or [tag('blocks.0', 'audit:pii')], not {given!r}"
                )
            yield _spent(rule)


def _spent(rule: TagRule) -> TagRule:
    rule._used = True
    return rule


def apply(lineage: LineageData, given: Iterable[TagRule]) -> None:
    """Tag the actions of ``lineage`` by rules.

    Raises:
        TagError: the model has nothing of that name; the message suggests the nearest.
    """
    for rule in given:
        try:
            lineage.tag(rule.what, *rule.tags)
        except KeyError as error:
            raise TagError(f"{rule!r}: {error.args[0]}") from None
