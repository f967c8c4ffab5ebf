"""A sum of products as the one sweep that it is: partial sums need no repair, and parts of them add up."""

from __future__ import annotations

from covan_mlir.fred.algebra import f
from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Map, Reduce
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Fusion, Local, Repair, Rolling, SplitK, Stage, State, Update
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles
from covan_mlir.lowering.kernels.dense.matrix_product import MatrixProduct


def swept(product: MatrixProduct) -> tuple[Fusion, SweepRoles]:
    """-> (the sweep over what is contracted, its axes: rows, and columns as features)."""
    chain, step = product.chain, product.step
    name, axes, dtype = step.name, step.axes, step.dtype

    def moment(of: str) -> Read:
        return Read(f"{name}.{of}", dtype)

    def update(left: str, right: str) -> Update:
        return Update(f"{name}.new", axes, f("addf", moment(left), moment(right)), dtype)

    terms = f("mulf", product.left, product.right)
    local = Local(f"{name}.local", Reduce(f"{name}.local", axes, step.over, "add", terms, step.initial, dtype))
    repair = Repair(name, "none", (), (), moment("old"), Certificate("partial sums need no repair", ()))
    rolling = Rolling(
        product.contracted,
        (State(name, axes, dtype, step.initial),),
        (),
        (local, update("old", "local")),
        (Update(name, axes, moment("new"), dtype, step.trace),),
        (repair,),
    )
    split = SplitK(rolling, (update("a", "b"),))
    after = tuple(other for other in chain.steps if isinstance(other, Map) and name in chain.depends(other.name))
    stage = Stage(product.contracted, (name,), rolling, split, (), (), after)
    roles = SweepRoles(
        (stage,), product.contracted, (*product.batch, *product.rows), product.rows, product.columns, (), True
    )
    return Fusion(chain, chain, (stage,)), roles
