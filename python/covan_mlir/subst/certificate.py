"""Certificates of rules: what was proved, by whom, and what it rests on. Reading one needs no prover."""

from __future__ import annotations

from typing import Literal

from covan_mlir.support.typed_json import JsonObject

Status = Literal["proved", "refuted", "undecided", "assumed"]


class Certificate(JsonObject, frozen=True):
    """What is known of one rule.

    Attributes:
        status: ``proved`` where the normal forms of both sides are one and no numbers say otherwise.
        normal_form: a digest of the normal forms of the results; empty where there are none or they differ.
        points: at how many random points, in the field of integers modulo a prime and with random sizes, both sides
            were found equal. conditions: polynomials in sizes that have to be at least 0, beyond sizes being sizes.
            counterexample: sizes where the sides differ. axioms: names of those from which Z3 proves it; empty where
            it was not asked or does not.
    """

    status: Status
    normal_form: str = ""
    points: int = 0
    conditions: tuple[str, ...] = ()
    counterexample: str = ""
    axioms: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.status}"]
        if self.normal_form:
            lines.append(f"one normal form for all sizes, {self.normal_form}")
        if self.points:
            lines.append(f"equal at {self.points} random points modulo 2^31 - 1")
        if self.axioms:
            lines.append(f"follows from {', '.join(self.axioms)}")
        lines += [f"where {condition} >= 0" for condition in self.conditions]
        if self.counterexample:
            lines.append(f"not where {self.counterexample}")
        return "\n".join(lines)
