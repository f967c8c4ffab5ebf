"""``fred-rolling-update``: reductions under the loop of one that they depend on, repaired when that changes."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.fred_fused import write_fusion
from covan_mlir.fred.chain import Chain, ChainError
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.rewriter import Rewriter


@dataclass(frozen=True)
class FredRollingUpdate:
    """Makes each ``fred.chain`` a ``fred.fused``: its normal form, and as few sweeps over it as the algebra allows.

    Repairs are derived from the expressions and proved; where none is found, the reduction gets a sweep of its own, and
    ``why`` of its ``fred.sweep`` says the reason. Certificates of the normal form are in the attribute ``rewrites``,
    dependences that stayed are in ``refusals``. A chain that reads through a window has
    no fused form, and stays.

    Before::

        %l = "fred.chain"(%x) ({
        ^bb0(%in: tensor<5x7xf32>):
          %m = max[j] (in)
          %l = add[j] (exp(in - m))
          "fred.output"(%l)
        })

    After, in short::

        %l = "fred.fused"(%x) ({the chain}, {
        ^bb0(%in: tensor<5x7xf32>):
          "fred.sweep"() {axes = ["j"], why = ""}
          %m, %l = "fred.rolling"() ({
          ^bb0(%m.old, %l.old):
            %m.local = max[j] (in)
            %m.new = max(m.old, m.local)
            %l.local = add[j] (exp(in - m.new))
            "fred.repair"() ({l.old * exp(m.old - m.new)}) {value = "l", statistics = ["m"]}
            %l.new = l.old * exp(m.old - m.new) + l.local
            "fred.next"(%m.new), "fred.next"(%l.new)
          }, {m = m.new, l = l.new}, {})
          "fred.output"(%l)
        })

    Options:
        repairs: whether reductions may be repaired; if not, each waits for its statistics in a sweep of its own
        rows: whether chains whose reductions all run over the same axes are fused as well: a short row that is in cache
            is swept again for less than a repair costs
    """

    name: ClassVar[str] = "fred-rolling-update"
    op_name: ClassVar[str | None] = "func.func"

    repairs: bool = True
    rows: bool = True

    def run(self, op: ir.Operation) -> None:
        rewriter = Rewriter(op)
        for chain_op in list(chains(op, "fred.chain")):
            chain = read_chain(chain_op)
            if not chain.windowed and (self.rows or not is_rows(chain)):
                fuse_op(chain_op, fuse(chain, self.repairs), rewriter)


def is_rows(chain: Chain) -> bool:
    """Whether all reductions run over the same axes."""
    return chain.single_domain or not chain.reductions


def fuse_op(op: ir.Operation, fusion: Fusion, rewriter: Rewriter) -> ir.Operation:
    """Replaces a ``fred.chain`` by its fused form -> the ``fred.fused``.

    Raises:
        PassFailure: it does not fit into the operation.
    """
    try:
        with rewriter.replacing(op) as new:
            fused_op = write_fusion(fusion, list(op.operands))
            rewrites = [{**asdict(r), "certificate": r.certificate.to_json()} for r in fusion.rewrites]
            fused_op.attributes["rewrites"] = attribute(rewrites, op.context)
            fused_op.attributes["refusals"] = attribute([asdict(r) for r in fusion.refusals], op.context)
            new.results(fused_op)
    except ChainError as error:
        raise PassFailure(str(error), op.location) from error
    return fused_op
