"""Proof obligations of rewrites, and the certificates that they were discharged.

Three provers look at every obligation. Numbers try to refute it; Z3 proves it over the reals, where exp, log and the
like are functions of which only the laws that an obligation names are known, each instantiated where it is needed;
SymPy simplifies the difference of the two sides to zero, as a second opinion. One proof suffices, one refutation is
enough to reject. No certificate, no fusion.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from covan_mlir.fred.expression import Expr
from covan_mlir.typed_json import Amount, JsonObject

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
        from covan_mlir.fred.algebra import text  # reading a certificate needs no SymPy

        return f"{text(self.left)} {self.relation} {text(self.right)}"


class Proof(JsonObject, frozen=True):
    """What became of one obligation.

    Attributes:
        provers: those that agree with ``result``.
        counterexample: values that refute it.
        seconds: time that all provers took.
    """

    title: str
    obligation: str
    given: tuple[str, ...]
    axioms: tuple[str, ...]
    provers: tuple[str, ...]
    result: Result
    counterexample: str
    seconds: Amount

    def __str__(self) -> str:
        lines = [f"  {self.title}", f"    {self.obligation}"]
        lines += [f"    given {hypothesis}" for hypothesis in self.given]
        lines += [f"    axiom {axiom}" for axiom in self.axioms]
        by = f" by {', '.join(self.provers)}" if self.provers else ""
        lines += [f"    {self.result}{by}" + (f": {self.counterexample}" if self.counterexample else "")]
        return "\n".join(lines)


class Certificate(JsonObject, frozen=True):
    """A claim and the proofs of all that it rests on."""

    claim: str
    proofs: tuple[Proof, ...]

    @property
    def result(self) -> Result:
        """``proved`` if all obligations are, ``refuted`` if one is."""
        results = {proof.result for proof in self.proofs}
        return "refuted" if "refuted" in results else "unknown" if "unknown" in results else "proved"

    @property
    def seconds(self) -> float:
        """Time that the provers took."""
        return sum(proof.seconds for proof in self.proofs)

    def __str__(self) -> str:
        return "\n".join([f"{self.claim}: {self.result}", *map(str, self.proofs)])


class NoCertificateError(ValueError):
    """A claim was not proved.

    Attributes:
        certificate: what was tried.
    """

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(str(certificate))
        self.certificate = certificate


def prove(claim: str, obligations: Sequence[Obligation]) -> Certificate:
    """Try to discharge every obligation of a claim; the certificate says whether that worked."""
    return Certificate(claim, tuple(map(discharge, obligations)))


def certify(claim: str, obligations: Sequence[Obligation]) -> Certificate:
    """As `prove`, for those who cannot do without.

    Raises:
        NoCertificateError: an obligation is refuted or open.
    """
    certificate = prove(claim, obligations)
    if certificate.result != "proved":
        raise NoCertificateError(certificate)
    return certificate


_known: dict[Obligation, Proof] = {}


def discharge(obligation: Obligation) -> Proof:
    """Ask the provers about one obligation; answers are kept."""
    if obligation not in _known:
        _known[obligation] = _discharge(obligation)
    return _known[obligation]


def _discharge(obligation: Obligation) -> Proof:
    from covan_mlir.fred import provers
    from covan_mlir.fred.algebra import text

    start = time.perf_counter()
    given = [text(hypothesis) for hypothesis in (*obligation.given, *provers.domain(obligation))]
    agree: list[str] = []
    result: Result = "unknown"
    counterexample = provers.refute(obligation)
    if counterexample:
        result, agree = "refuted", ["numbers"]
    else:
        second = provers.ask_sympy(obligation)
        verdict, counterexample = provers.ask_z3(obligation, provers.RESOURCES // (10 if second else 1))
        result = "proved" if second and verdict == "unknown" else verdict
        agree = [*(["z3"] if verdict != "unknown" else []), *(["sympy"] if second and verdict != "refuted" else [])]
    return Proof(
        obligation.title,
        str(obligation),
        tuple(dict.fromkeys(given)),
        tuple(dict.fromkeys(LAWS[law.name] for law in obligation.laws)),
        tuple(agree),
        result,
        counterexample,
        time.perf_counter() - start,
    )
