"""A sum of products as the one sweep that it is: partial sums need no repair, and parts of them add up."""

from __future__ import annotations

from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read
from covan_mlir.fred.forms import Fusion, Local, Repair, Rolling, SplitK, Stage, State, Update
from covan_mlir.lowering.kernels.cuda.integer_products import integer_terms
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles
from covan_mlir.lowering.kernels.dense.matrix_product import MatrixProduct
from covan_mlir.lowering.kernels.reductions.hoist import Scope


def swept(product: MatrixProduct) -> tuple[Fusion, SweepRoles]:
    """-> (the sweep over what is contracted, its axes: rows, and columns as features).

    Raises:
        UnsupportedError: it multiplies integers that there is no instruction for.
    """
    chain, name = product.chain, product.step.name
    sums, result = _sums(product)
    rolling = Rolling(
        product.contracted,
        tuple(State(one.name, one.axes, one.dtype, one.initial) for one in sums),
        (),
        tuple(line for one in sums for line in (_local(one), _added(one, "new", "old", "local"))),
        (Update(name, product.step.axes, result, product.step.dtype, product.step.trace),),
        (Repair(name, "none", (), (), _at(sums[0], "old"), Certificate("partial sums need no repair", ())),),
    )
    split = SplitK(rolling, tuple(_added(one, "new", "a", "b") for one in sums))
    after = tuple(other for other in chain.steps if isinstance(other, Map) and name in chain.depends(other.name))
    stage = Stage(product.contracted, (name,), rolling, split, (), (), after)
    roles = SweepRoles(
        (stage,), product.contracted, (*product.batch, *product.rows), product.rows, product.columns, (), True
    )
    return Fusion(chain, chain, (stage,)), roles


def _sums(product: MatrixProduct) -> tuple[list[Reduce], Expr]:
    """-> (what is summed, and what the product's step is of that)."""
    step = product.step
    if step.dtype[0] != "i":
        total = _sum(product, step.name, Apply("arith.mulf", (product.left, product.right), step.dtype))
        return [total], _at(total, "new")
    terms = integer_terms(product)
    total = _sum(product, step.name, terms.products)
    if not terms.excess:
        return [total], _at(total, "new")
    others = _sum(product, f"{step.name}.beside", terms.other)
    excess = Apply("arith.muli", (_at(others, "new"), Const(terms.excess, step.dtype)), step.dtype)
    return [total, others], Apply("arith.subi", (_at(total, "new"), excess), step.dtype)


def _sum(product: MatrixProduct, name: str, term: Expr) -> Reduce:
    step = product.step
    read = Scope(product.chain, {}).axes(term)
    return Reduce(
        name, tuple(axis for axis in step.axes if axis in read), step.over, "add", term, step.initial, step.dtype
    )


def _local(one: Reduce) -> Local:
    name = f"{one.name}.local"
    return Local(name, Reduce(name, one.axes, one.over, "add", one.expr, one.initial, one.dtype))


def _at(one: Reduce, moment: str) -> Read:
    return Read(f"{one.name}.{moment}", one.dtype)


def _added(one: Reduce, into: str, left: str, right: str) -> Update:
    add = "arith.addi" if one.dtype[0] == "i" else "arith.addf"
    return Update(f"{one.name}.{into}", one.axes, Apply(add, (_at(one, left), _at(one, right)), one.dtype), one.dtype)
