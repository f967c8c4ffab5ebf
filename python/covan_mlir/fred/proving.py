"""Discharging the proof obligations of rewrites.

Three provers look at every obligation. Numbers try to refute it; Z3 proves it over the reals, where exp, log and the
like are functions of which only the laws that an obligation names are known, each instantiated where it is needed;
SymPy simplifies the difference of the two sides to zero, as a second opinion. One proof suffices, one refutation is
enough to reject. No certificate, no fusion.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from covan_mlir.fred import provers
from covan_mlir.fred.certificate import Certificate, NoCertificateError, Proof
from covan_mlir.fred.formulas import text
from covan_mlir.fred.obligation import LAWS, Obligation, Result


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
