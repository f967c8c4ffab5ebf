"""Index arithmetic of CPU kernels: what is written computes what was asked for, and nothing is written twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import iree.compiler.ir as ir
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler.dialects import arith, scf

from covan_mlir.lowering.kernels.cpu.executable import context
from covan_mlir.lowering.kernels.cpu.indices import Indices

ARGUMENTS = 3
OPERATIONS = {
    "arith.addi": lambda a, b: a + b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.minsi": min,
    "arith.maxsi": max,
}


class Function:
    """A function of some indices, being written."""

    def __init__(self) -> None:
        index = ir.IndexType.get()
        text = f"func.func @f({', '.join(f'%a{n}: index' for n in range(ARGUMENTS))}) {{ return }}"
        self.module = ir.Module.parse(text)
        self.block = self.module.body.operations[0].regions[0].blocks[0]
        self.indices = Indices(lambda value: self.constant(value, index))
        self.constants: dict[int, Any] = {}

    def constant(self, value: int, index: Any) -> Any:
        """A constant, once."""
        if value not in self.constants:
            with ir.InsertionPoint.at_block_begin(self.block):
                self.constants[value] = arith.constant(index, value)
            self.indices.known(self.constants[value], value)
        return self.constants[value]

    @property
    def written(self) -> list[Any]:
        """The operations but for constants."""
        return [op for op in self.block if op.operation.name in OPERATIONS]

    def evaluate(self, value: Any, given: list[int]) -> int:
        """A value, of those of the arguments."""
        if isinstance(value.owner, ir.Block):
            return given[ir.BlockArgument(value).arg_number]
        operation = value.owner
        if operation.name == "arith.constant":
            return ir.IntegerAttr(operation.attributes["value"]).value
        return OPERATIONS[operation.name](*(self.evaluate(operand, given) for operand in operation.operands))


@contextmanager
def function() -> Iterator[Function]:
    """A function, at whose end is written."""
    with context(), ir.Location.unknown():
        writes = Function()
        with ir.InsertionPoint(writes.block.operations[len(writes.block.operations) - 1]):
            yield writes
        assert writes.module.operation.verify()


steps = st.tuples(
    st.sampled_from(["add", "sub", "mul", "times", "quotient", "remainder", "least", "most"]),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(1, 12),
)


@given(st.lists(steps, max_size=14), st.lists(st.integers(0, 1000), min_size=ARGUMENTS, max_size=ARGUMENTS))
def test_what_is_written_is_what_was_asked_for(program: list[tuple[str, int, int, int]], given: list[int]) -> None:
    with function() as writes:
        indices = writes.indices
        values: list[tuple[Any, int]] = list(zip(writes.block.arguments, given, strict=True))
        for name, first, second, number in program:
            (a, x), (b, y) = values[first % len(values)], values[second % len(values)]
            match name:
                case "add":
                    values.append((indices.add(a, b, number), x + y + number))
                case "sub" if x >= y:
                    values.append((indices.sub(a, b), x - y))
                case "mul":
                    values.append((indices.mul(a, number), x * number))
                case "times":
                    values.append((indices.mul(a, b), x * y))
                case "quotient":
                    values.append((indices.divmod(a, number)[0], x // number))
                case "remainder":
                    values.append((indices.divmod(a, number)[1], x % number))
                case "least":
                    values.append((indices.extreme("minsi", a, b), min(x, y)))
                case "most":
                    values.append((indices.extreme("maxsi", a, number), max(x, number)))
        assert [writes.evaluate(value, given) for value, _ in values] == [number for _, number in values]


def test_sums_that_differ_by_a_constant_share_what_they_have_in_common() -> None:
    with function() as writes:
        i, k, _ = writes.block.arguments
        indices = writes.indices
        first = indices.add(indices.mul(k, 9), indices.mul(i, 576))
        assert len(writes.written) == 3  # two products, one sum
        second = indices.add(indices.mul(indices.add(i, 1), 576), indices.mul(k, 9))
        assert second.owner.operands[0] == first
        assert indices.sub(second, 576) == first
        assert indices.divmod(indices.mul(first, 4), 36)[1] == writes.constants[0]
        kept = arith.index_cast(ir.IntegerType.get_signless(64), second)
        indices.erase_unused()
        assert [op.operation.name for op in writes.written] == ["arith.muli", "arith.muli", "arith.addi", "arith.addi"]
        assert writes.evaluate(kept.owner.operands[0], [2, 5, 0]) == 3 * 576 + 5 * 9


def test_what_a_region_holds_is_not_used_after_it() -> None:
    with function() as writes:
        i, k, _ = writes.block.arguments
        condition = arith.cmpi(arith.CmpIPredicate.slt, i, k)
        branch = scf.IfOp(condition)
        with ir.InsertionPoint(branch.then_block), writes.indices.region():
            inner = writes.indices.add(i, k)
            assert writes.indices.add(k, i) == inner
            scf.YieldOp([])
        assert writes.indices.add(i, k) != inner
