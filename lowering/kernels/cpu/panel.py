"""Panels: what is read as vectors in a product, staged in scratch so that the inner loop reads it in order.

::

    panel[k, vectors * lanes] = b[k, j]      # one vector after the other, where b has j last
    panel[k, vectors * lanes] = b[j, k]      # blocks of lanes * lanes elements, transposed in registers, where it has k
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from covan_mlir.fred.chain import Chain, Input, Step
from covan_mlir.fred.expression import Expr, reads
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Position, VectorEvaluator, address
from covan_mlir.lowering.kernels.cpu.product_roles import Product
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import Place
from covan_mlir.lowering.kernels.cpu.tiles import transpose
from covan_mlir.lowering.kernels.cpu.word_factors import WordFactors


@dataclass(frozen=True)
class Panel:
    """A panel, by positions on the contracted axes and vectors.

    Attributes:
        factors: if they are multiplied a word at a time: then vectors hold the words of several positions.
    """

    code: KernelBuilder
    product: Product
    evaluator: VectorEvaluator
    sizes: Mapping[str, Size]
    vectors: int
    memory: Value
    factors: WordFactors | None

    @staticmethod
    def make(
        code: KernelBuilder,
        product: Product,
        evaluator: VectorEvaluator,
        sizes: Mapping[str, Size],
        schedule: ProductSchedule,
    ) -> Panel:
        """One in the stack frame."""
        inner = prod(product.sizes[axis] for axis in product.contracted[1:])
        factors = WordFactors.of(product) if schedule.words else None
        # Transposed blocks are written whole: beyond the last position there is room for one.
        block = code.lanes * (1 if factors is None else factors.words.count)
        elements = (schedule.depth * inner + block) * schedule.vectors * code.lanes
        memory = code.scratch(elements, computed(product.step.dtype) if factors is None else factors.vectors.dtype)
        return Panel(code, product, evaluator, sizes, schedule.vectors, memory, factors)

    @property
    def _step(self) -> int:
        """Positions that a vector holds."""
        return 1 if self.factors is None else self.factors.words.count

    def _offset(self, place: Place, u: int) -> Value:
        code, flat = self.code, self.code.index(0)
        for axis in self.product.contracted:
            size = 1 if axis == self.product.contracted[0] else self.sizes[axis]
            flat = code.add(code.mul(flat, size), place[axis])
        return code.add(code.mul(flat, self.vectors * code.lanes), u * self._step * code.lanes)

    def _load(self, u: int, place: Place, tap: int) -> Value:
        """There is one tap."""
        code, at = self.code, self._offset(place, u)
        return code.load(self.memory, at) if self.factors is None else self.factors.words.load(code, self.memory, at)

    def fill(
        self, outer: Mapping[str, Value], first: Value, valid: Sequence[Value | None], start: Value, count: Size
    ) -> Callable[[int, Place, int], Value]:
        """Stages a block.

        Args:
            first: column.
            valid: masks of the columns that exist, by vector.
            start, count: of the first contracted axis.

        Returns:
            a vector of the block, by number, position and tap; positions on the first contracted axis count from the
            block's first.
        """
        along = transposed_axis(self.product.chain, self.product.vectors, self.product.lane, self.product.contracted)
        if along is None:
            self._copy(outer, first, valid, start, count)
        else:
            self._transpose(along, outer, first, valid, start, count)
        return self._load

    def asker(
        self, outer: Mapping[str, Value], first: Value, start: Value, count: Size, tile: Value, tiles: int
    ) -> Callable[[Place], None]:
        """What asks, at each position of a register tile, for its share of the panel behind one.

        Args:
            first: column of this one.
            start, count: of the block of the first contracted axis.
            tile: number of the register tile, of as many in a group.
        """
        code, product = self.code, self.product
        streamed = widest(product.chain, product.vectors)
        behind = code.add(first, self.vectors * code.lanes)
        if transposed_axis(product.chain, product.vectors, product.lane, product.contracted) is None:
            line = code.mul(code.min(tile, self.vectors), code.lanes)
            column, each = code.add(behind, line), 1
        else:
            each = -(-self.vectors * code.lanes // tiles)
            column = code.add(behind, code.mul(tile, each))

        def ask(place: Place) -> None:
            turn = code.divmod(code.divmod(place[product.contracted[-1]], self._step)[0], each)[1]
            index = {**outer, **self._at(dict(place), start), product.lane: code.add(column, turn)}
            at, _ = address(code, streamed.axes, self.sizes, Position(index, product.lane))
            code.prefetch(code.memory[streamed.name], at, near=False)

        return ask

    def _nest(self, axes: Sequence[str], count: Size, body: Callable[[dict[str, Value]], None]) -> None:
        """Loops over contracted axes."""
        code, split = self.code, self.product.contracted[0]

        def level(n: int, place: dict[str, Value]) -> None:
            if n == len(axes):
                body(place)
                return

            def inside(at: Value, _: list[Value]) -> list[Value]:
                level(n + 1, {**place, axes[n]: at})
                return []

            step = self._step if axes[n] == self.product.contracted[-1] else 1
            code.loop(0, count if axes[n] == split else self.sizes[axes[n]], step, [], inside)

        level(0, {})

    def _at(self, place: Place, start: Value) -> dict[str, Value]:
        """A position on the contracted axes themselves."""
        split = self.product.contracted[0]
        return {**place, split: self.code.add(start, place[split])}

    def _copy(
        self, outer: Mapping[str, Value], first: Value, valid: Sequence[Value | None], start: Value, count: Size
    ) -> None:
        code, lane = self.code, self.product.lane

        def body(place: dict[str, Value]) -> None:
            for u, mask in enumerate(valid):
                index = {**outer, **self._at(place, start), lane: code.add(first, u * code.lanes)}
                code.store(self._row(index, mask), self.memory, self._offset(place, u))

        self._nest(self.product.contracted, count, body)

    def _row(self, index: Mapping[str, Value], mask: Value | None) -> Value:
        """Elements along the lanes' axis; of words those of several positions, interleaved."""
        code, lane, last = self.code, self.product.lane, self.product.contracted[-1]
        if self.factors is None:
            return self.evaluator.vector(self.product.vectors, Position(index, lane, mask))
        memory, axes = code.memory[self.factors.vectors.name], self.factors.vectors.axes
        words = self.factors.words
        rows = [{**index, last: code.add(index[last], n)} for n in range(words.count)]
        at = [address(code, axes, self.sizes, Position(row, lane))[0] for row in rows]
        value = words.interleaved(code, *(code.load(memory, start, mask) for start in at))
        return words.unpacked(code, words.turned(code, words.packed(code, value))) if self.factors.turned else value

    def _transpose(
        self,
        along: str,
        outer: Mapping[str, Value],
        first: Value,
        valid: Sequence[Value | None],
        start: Value,
        count: Size,
    ) -> None:
        code, product, lanes = self.code, self.product, self.code.lanes
        size = count if along == product.contracted[0] else self.sizes[along]
        columns = code.size(self.sizes[product.lane])
        deep = self._step * lanes
        ragged = not isinstance(size, int) or size % deep != 0

        def vector(place: dict[str, Value], u: Value) -> None:
            def block(at: Value, none: list[Value]) -> list[Value]:
                exist = code.min(code.op("subi", code.size(size), at), deep) if ragged else None
                inner, left = {**place, along: at}, code.add(first, code.mul(u, lanes))
                read: list[Value] = []
                for c in range(lanes):
                    column = code.add(left, c)
                    if any(exists is not None for exists in valid):
                        # Beyond the last column, that one once more: nobody reads it.
                        column = code.min(column, code.add(columns, -1))
                    index = {**outer, **self._at(inner, start), product.lane: column}
                    read.append(self._column(index, along, exist))
                base = code.add(self._offset(inner, 0), code.mul(u, deep))
                for r, value in enumerate(transpose(code, read)):
                    whole = value if self.factors is None else self.factors.words.unpacked(code, value)
                    code.store(whole, self.memory, code.add(base, r * self.vectors * deep))
                return none

            code.loop(0, size, deep, [], block)

        def body(place: dict[str, Value]) -> None:
            def one(u: Value, none: list[Value]) -> list[Value]:
                vector(place, u)
                return none

            code.loop(0, len(valid), 1, [], one)

        self._nest([axis for axis in product.contracted if axis != along], count, body)

    def _column(self, index: Mapping[str, Value], along: str, exist: Value | None) -> Value:
        """Elements of a column along what is contracted, of which so many exist; words of 32 bits."""
        code = self.code
        if self.factors is None:
            mask = None if exist is None else code.prefix(exist)
            return self.evaluator.vector(self.product.vectors, Position(index, along, mask))
        vectors, words = self.factors.vectors, self.factors.words
        at, _ = address(code, vectors.axes, self.sizes, Position(index, along))
        mask = None if exist is None else words.prefix(code, exist)
        return words.packed(code, words.load(code, code.memory[vectors.name], at, mask))


def transposed_axis(chain: Chain, expr: Expr, lane: str, contracted: Sequence[str]) -> str | None:
    """The contracted axis along which an expression is read as vectors and transposed: the last contracted one, where
    it and not the lane axis is the last one of the widest tensor. None: it is read along the lanes."""
    axes = widest(chain, expr).axes
    # Blocks are written in order, each over what the one before it left beyond its last position.
    return contracted[-1] if lane in axes and axes[-1] == contracted[-1] else None


def widest(chain: Chain, expr: Expr) -> Input | Step:
    """Of what an expression reads, the tensor of most axes."""
    return max((chain.values[name] for name in reads(expr)), key=lambda value: len(value.axes))
