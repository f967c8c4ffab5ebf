"""``fred-certify``: what fused forms claim is proved, and the proof kept beside it."""

import sys
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import chains
from covan_mlir.dialects.fred_fused import attach_certificates, read_fusion, rolling_ops
from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.check import ClaimError, check
from covan_mlir.passes.framework.interface import PassFailure


@dataclass(frozen=True)
class FredCertify:
    """Proves that each ``fred.fused`` computes its chain, and gives each ``fred.repair`` its ``certificate``.

    Nothing is taken on trust: every line of every loop has to follow from the chain and the repairs, each repair is
    proved, and rows of special values have to give NaN and infinities where the chain gives them. A form that does not
    pass is an error that names the line, with the values that refute it.

    Before::

        "fred.repair"() ({l.old * exp(m.old - m.new)}) {value = "l", statistics = ["m"], kind = "multiplicative"}

    After::

        "fred.repair"() ({...}) {certificate = {claim = "repair of l = ...", proofs = [{axioms = [...],
            obligation = "...", provers = ["z3", "sympy"], result = "proved", seconds = 0.01, ...}]}, ...}

    Options:
        report: write the certificates as text to standard error
    """

    name: ClassVar[str] = "fred-certify"
    op_name: ClassVar[str | None] = "func.func"

    report: bool = True

    def run(self, op: ir.Operation) -> None:
        for fused_op in chains(op, "fred.fused"):
            for certificate in certify_op(fused_op):
                if self.report:  # the bindings can emit no remark
                    print(certificate, file=sys.stderr)


def certify_op(op: ir.Operation) -> tuple[Certificate, ...]:
    """Proves a ``fred.fused`` and attaches its certificates.

    Raises:
        PassFailure: it does not compute its chain, or that cannot be proved.
    """
    try:
        certificates = check(read_fusion(op))
    except ClaimError as error:
        raise PassFailure(str(error), _line(op, error.name) or op.location) from error
    for loop in rolling_ops(op):
        attach_certificates(loop, certificates)
    return tuple(certificates.values())


def _line(op: ir.Operation, name: str) -> ir.Location | None:
    """Where the sweeps define a value, or claim its repair."""
    locations: list[ir.Location] = []

    def visit(nested: ir.Operation) -> ir.WalkResult:
        value = nested.attributes.get("value")
        if isinstance(value, ir.StringAttr) and value.value == name:
            locations.append(nested.location)
        return ir.WalkResult.ADVANCE

    for view in op.regions[1].blocks[0]:
        view.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return locations[0] if locations else None
