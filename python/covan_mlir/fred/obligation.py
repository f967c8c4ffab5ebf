"""What has to be proved of a rewrite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covan_mlir.fred.expression import Expr

Result = Literal["proved", "refuted", "unknown"]

LAWS: dict[str, str] = {
    "exp-sum": "exp(a + b) = exp(a) * exp(b)",
    "exp-positive": "exp(a) > 0",
    "exp-zero": "exp(0) = 1",
    "exp-monotone": "a <= b -> exp(a) <= exp(b)",
    "log-product": "a > 0, b > 0 -> log(a * b) = log(a) + log(b)",
    "log-exp": "log(exp(a)) = a",
    "sqrt-product": "a >= 0, b >= 0 -> sqrt(a * b) = sqrt(a) * sqrt(b)",
    "sqrt-square": "a >= 0 -> sqrt(a) >= 0, sqrt(a) * sqrt(a) = a",
    "tanh-monotone": "a <= b -> tanh(a) <= tanh(b)",
}
"""What is known of functions that are not arithmetic."""


@dataclass(frozen=True)
class Law:
    """One of `LAWS`, instantiated."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Obligation:
    """``given`` implies ``left relation right``, for all real values of the names.

    Attributes:
        title: what it is there for.
        given: hypotheses, i1 expressions. That denominators are not zero and that logarithms and roots are taken where
            they are defined is assumed besides: where the chain itself is not defined, there is nothing to preserve.
        laws: instances of `LAWS` that the proof may use.
    """

    title: str
    left: Expr
    right: Expr
    relation: Literal["=", "<="] = "="
    given: tuple[Expr, ...] = ()
    laws: tuple[Law, ...] = ()

    def __str__(self) -> str:
        from covan_mlir.fred.formulas import text  # reading a certificate needs no SymPy

        return f"{text(self.left)} {self.relation} {text(self.right)}"
