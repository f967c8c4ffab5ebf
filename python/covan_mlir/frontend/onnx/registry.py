"""Which ONNX operators are translated, by whom, and in which opsets: each is declared once, beside its translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from covan_mlir.frontend.onnx.call import Call

Translation: TypeAlias = Callable[["Call"], Any]
"""Gives the node's results: a tensor, a `Value`, a sequence (a list), or a tuple of these for several results."""
MICROSOFT = "com.microsoft"
OLDEST = 6
"""The oldest opset that is translated."""


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        domain: ``""`` is ONNX's own, ``com.microsoft`` that of ONNX Runtime's contributed operators.
        since, until: first opset, and last (None: it is in the newest), of that domain.
        symbolic: whether the translation takes open sizes as they are; else they are tensors to it.
    """

    name: str
    domain: str
    since: int
    until: int | None
    translation: Translation
    symbolic: bool = False

    @property
    def opsets(self) -> str:
        """``7–``, ``7–9``."""
        return f"{self.since}–{self.until or ''}"


_OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str, since: int = OLDEST, until: int | None = None, domain: str = "", symbolic: bool = False
) -> Callable[[Translation], Translation]:
    """Declare what translates operators of these names."""

    def declare(translation: Translation) -> Translation:
        for name in names:
            known = _OPERATORS.setdefault((domain, name), [])
            assert all(_apart(other, since, until) for other in known), name
            known.append(Operator(name, domain, since, until, translation, symbolic))
        return translation

    return declare


def _apart(other: Operator, since: int, until: int | None) -> bool:
    return (other.until is not None and other.until < since) or (until is not None and until < other.since)


def lookup(domain: str, name: str, opset: int) -> Operator | None:
    """The operator of this name in an opset."""
    for known in _OPERATORS.get((canonical(domain), name), ()):
        if known.since <= opset and (known.until is None or opset <= known.until):
            return known
    return None


def operators() -> Iterator[Operator]:
    """All, by domain and name."""
    for key in sorted(_OPERATORS):
        yield from _OPERATORS[key]


def canonical(domain: str) -> str:
    """ONNX's own domain has two names."""
    return "" if domain == "ai.onnx" else domain


def table(
    translations: Sequence[tuple[str, Translation]], since: int = OLDEST, domain: str = "", symbolic: bool = False
) -> None:
    """Declare several operators that begin in the same opset."""
    for name, translation in translations:
        operator(name, since=since, domain=domain, symbolic=symbolic)(translation)
