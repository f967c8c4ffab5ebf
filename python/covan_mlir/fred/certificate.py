"""Certificates: what was proved of a rewrite, by whom, and from what. Reading one needs no prover."""

from __future__ import annotations

from covan_mlir.fred.obligation import Result
from covan_mlir.support.typed_json import Amount, JsonObject


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
