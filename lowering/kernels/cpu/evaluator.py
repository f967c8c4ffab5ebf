"""Expressions of a chain as code for one vector of positions.

Along one axis, the lane axis, the positions of a vector differ; on all others it has one position. A value that does
not depend on the lane axis stays a scalar until it meets one that does; an integer that grows along the lanes by a
constant stays a scalar and a step, so that the masks made of positions cost one comparison of narrow integers.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from iree.compiler.dialects import arith

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.exactness import Exactness, exactness, reproducible
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, Read, reads, substitute
from covan_mlir.lowering.kernels.cpu import functions
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed, storage
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.machine.elements import bits

_FLOATS = ("f16", "bf16", "f32", "f64")
_BINARY = ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf", "remf")
_INTEGER = ("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "divsi", "remsi", "floordivsi")
_NARROW = frozenset({"i8", "i16", "i32"})
"""Integers that are computed in more bits than they have."""
_SMALL = frozenset({"i8", "i16"})
"""Those to which numbers are cut in programs, and not positions and sizes."""
_ROUNDED = frozenset(f"arith.{op}" for op in ("truncf", "addf", "subf", "mulf", "divf", "remf", "sitofp", "uitofp"))
_SAME = ("extsi", "index_cast", "trunci")


@dataclass(frozen=True)
class Uniform:
    """One scalar for all lanes; ``small``: an integer known to fit in 32 bits."""

    value: Value
    small: bool = False


@dataclass(frozen=True)
class Lanes:
    """A vector."""

    value: Value


@dataclass(frozen=True)
class Ramp:
    """``base + step * lane``, base an i64."""

    base: Value
    step: int
    small: bool


Result = Uniform | Lanes | Ramp


@dataclass(frozen=True)
class Position:
    """Where a vector is.

    Attributes:
        index: position on each axis; on the lane axis that of the first lane.
        lane: the axis that the lanes run along.
        valid: mask of the lanes that exist; None for all.
        given: values that are known there.
        results: of expressions that have been evaluated there.
    """

    index: Mapping[str, Value]
    lane: str | None
    valid: Value | None = None
    given: Mapping[str, Result] = field(default_factory=dict, compare=False)
    results: dict[Expr, Result] = field(default_factory=dict, compare=False)


Source = Callable[[Position], Result]


def scalar(value: Result) -> Value:
    """The scalar of what is the same in all lanes."""
    assert isinstance(value, Uniform)
    return value.value


def load(code: KernelBuilder, memory: Value, dtype: str, axes: tuple[str, ...], sizes: Mapping[str, Size]) -> Source:
    """Reads a tensor in memory: a vector where the lane axis is its last, a gather where it is another one."""

    def run(position: Position) -> Result:
        at, step = address(code, axes, sizes, position)
        if isinstance(step, int) and step == 0:
            return Uniform(widen(code, code.scalar(memory, at), dtype))
        if isinstance(step, int) and step == 1:
            return Lanes(widen(code, code.load(memory, at, position.valid), dtype))
        loaded = code.gather(memory, at, code.offsets(step), position.valid)
        return Lanes(widen(code, loaded, dtype))

    return run


def address(
    code: KernelBuilder, axes: tuple[str, ...], sizes: Mapping[str, Size], position: Position
) -> tuple[Value, Size]:
    """-> (offset of the first lane's element, distance of the lanes: 0 where the tensor has no lane axis)."""
    stride: Size = 1
    distance: Size = 0
    terms: list[Value | int] = [0]
    for axis in reversed(axes):
        terms.append(code.mul(position.index[axis], stride))
        if axis == position.lane:
            distance = stride
        stride = code.mul(stride, sizes[axis]) if axis != axes[0] else stride
    return code.add(*terms), distance


def widen(code: KernelBuilder, value: Value, dtype: str) -> Value:
    """A loaded value in the type that it is computed in."""
    if dtype == "i1":
        return arith.cmpi(arith.CmpIPredicate.ne, value, code.like(0, value))
    if dtype in ("f16", "bf16"):
        return code.cast("extf", value, computed(dtype))
    if dtype in ("i8", "i16", "i32"):
        return code.cast("extsi", value, "i64")
    return value


def narrow(code: KernelBuilder, value: Value, dtype: str) -> Value:
    """A computed value in the type that it is stored in."""
    if dtype == "i1":
        return code.cast("extui", value, storage(dtype))
    if dtype in ("f16", "bf16"):
        return code.cast("truncf", value, dtype)
    if dtype in ("i8", "i16", "i32"):
        return code.cast("trunci", value, dtype)
    return value


class VectorEvaluator:
    """Turns expressions into code.

    Args:
        sources: how values that are in memory or in registers are read, by name.
        chain: its maps are computed where they are read, unless they have a source.
        aliases: names that stand for expressions, where these matter.
        exact: what is computed as the program says; None: it follows from the chain.
    """

    def __init__(
        self,
        code: KernelBuilder,
        chain: Chain,
        sources: Mapping[str, Source],
        aliases: Mapping[str, Expr] | None = None,
        exact: Exactness | None = None,
    ) -> None:
        self.code, self.chain, self.sources, self.aliases = code, chain, sources, aliases or {}
        self.exact = exact or exactness(chain)

    def reading(self, sources: Mapping[str, Source]) -> VectorEvaluator:
        """An evaluator that reads some values elsewhere."""
        return VectorEvaluator(self.code, self.chain, {**self.sources, **sources}, self.aliases, self.exact)

    def vector(self, expr: Expr, position: Position) -> Value:
        """The expression as a vector."""
        return self.lanes(self.run(expr, position))

    def lanes(self, value: Result) -> Value:
        """A result as a vector."""
        if isinstance(value, Ramp):
            kind = "i64"
            return self.code.op("addi", self.code.broadcast(value.base), self.code.iota(value.step, kind))
        return self.code.broadcast(value.value)

    def scalar(self, expr: Expr, position: Position) -> Value:
        """An expression that does not depend on the lane."""
        result = self.run(expr, position)
        if not isinstance(result, Uniform):
            raise UnsupportedError("a value per row depends on the position in the row")
        return result.value

    def run(self, expr: Expr, position: Position) -> Result:
        """The expression at a position."""
        if expr not in position.results:
            position.results[expr] = self._run(expr, position)
        return position.results[expr]

    def _run(self, expr: Expr, position: Position) -> Result:
        code = self.code
        match expr:
            case Const(value, dtype):
                if dtype in _FLOATS:
                    return Uniform(code.constant(value, computed(dtype)))
                if dtype == "i1":
                    return Uniform(code.constant(int(value), "i1"))
                return Uniform(code.constant(int(value), "i64"), small=abs(int(value)) < 2**30)
            case Index(axis):
                base = code.cast("index_cast", position.index[axis], "i64")
                return Ramp(base, 1, small=True) if axis == position.lane else Uniform(base, small=True)
            case Extent(axis):
                size = self.chain.sizes[axis]
                if size is None:
                    return Uniform(code.cast("index_cast", code.extents[axis], "i64"), small=True)
                return Uniform(code.constant(size, "i64"), small=size < 2**30)
            case Read(name):
                if name in position.given:
                    return position.given[name]
                if name in self.sources:
                    return self.sources[name](position)
                step = self.chain.values.get(name)
                if not isinstance(step, Map):
                    raise UnsupportedError(f"{name} is read before it is computed")
                return self.run(step.expr, position)
            case Apply():
                return self._apply(expr, position)
        raise UnsupportedError(f"no code for {expr}")

    def _apply(self, expr: Apply, position: Position) -> Result:
        dialect, _, op = expr.op.partition(".")
        op, _, predicate = op.partition(":")
        if op == "addf" and not self.exact.roundings and (inner := _of_one_and_erf(expr)) is not None:
            under = self.run(inner, position)
            value = functions.one_and_erf(self.code, under.value if isinstance(under, Uniform) else self.lanes(under))
            return Uniform(value) if isinstance(under, Uniform) else Lanes(value)
        args = [self.run(arg, position) for arg in expr.args]
        if op == "trunci" and expr.dtype in _SMALL:
            return self._kept_bits(args[0], expr.dtype, signed=True)
        if op in _SAME and expr.dtype != "i1":
            return args[0]
        if op in ("extui", "uitofp") and expr.args[0].dtype in _NARROW:
            whole = self._kept_bits(args[0], expr.args[0].dtype, signed=False)
            if op == "extui":
                return whole
            op, args = "sitofp", [whole]
        if op in ("extf", "truncf") and computed(expr.dtype) == computed(expr.args[0].dtype):
            return self._rounded(args[0], expr)  # half precision is computed in single
        if op == "cmpi":
            return self._compare_integers(predicate, args[0], args[1])
        affine = op in ("addi", "subi", "muli") and any(isinstance(a, Ramp) for a in args)
        if affine and (ramp := self._ramp(op, args[0], args[1], expr.args)) is not None:
            return ramp
        if op == "sitofp" and isinstance(args[0], Ramp) and args[0].small:
            return self._ramp_to_float(args[0], computed(expr.dtype))
        small = op in ("addi", "subi") and all(isinstance(a, Uniform) and a.small for a in args)
        if op == "divf" and isinstance(args[1], Uniform) and not isinstance(args[0], Uniform):
            return self._rounded(self._divide(args[0], args[1], expr), expr)
        uniform = all(isinstance(a, Uniform) for a in args)
        if op == "select" and isinstance(args[0], Uniform):
            values = [a.value if uniform and isinstance(a, Uniform) else self.lanes(a) for a in args[1:]]
            chosen = arith.select(args[0].value, *values)
            return Uniform(chosen) if uniform else Lanes(chosen)
        operands = [a.value if uniform and isinstance(a, Uniform) else self.lanes(a) for a in args]
        value = self._operation(dialect, op, predicate, operands, expr)
        return self._rounded(Uniform(value, small) if uniform else Lanes(value), expr)

    def _kept_bits(self, value: Result, dtype: str, *, signed: bool) -> Result:
        """An integer as the bits of it say that a type has, with a sign or none: all are computed in 64."""
        code, count = self.code, bits(dtype)
        wide = value.value if isinstance(value, Uniform) else self.lanes(value)
        if signed:
            shift = code.like(64 - count, wide)
            kept = arith.shrsi(arith.shli(wide, shift), shift)
        else:
            kept = arith.andi(wide, code.like(2**count - 1, wide))
        return Uniform(kept) if isinstance(value, Uniform) else Lanes(kept)

    def _operation(self, dialect: str, op: str, predicate: str, args: list[Value], expr: Apply) -> Value:
        code = self.code
        if dialect == "arith":
            if op == "cmpf":
                return functions.compare(code, predicate, *args)
            if op in _BINARY or op in _INTEGER or op in ("negf", "select"):
                return code.op(op, *args)
            if op == "fptosi" and expr.dtype in _NARROW:
                # What these do not hold has no value. To make 64 bits of floats takes twice as many instructions.
                return code.cast("extsi", code.cast(op, args[0], "i32"), "i64")
            if op == "sitofp" and expr.args[0].dtype in _NARROW:
                # From the bits that there are: those of 64 take more instructions.
                return code.cast(op, code.cast("trunci", args[0], "i32"), computed(expr.dtype))
            if op in ("sitofp", "uitofp", "fptosi", "fptoui", "extui", "extf", "truncf"):
                # integers are computed in 64 bits, whatever they are stored in
                return code.cast(op, args[0], "i64" if expr.dtype[0] == "i" else computed(expr.dtype))
            if op == "trunci" and expr.dtype == "i1":
                return arith.cmpi(arith.CmpIPredicate.ne, args[0], code.like(0, args[0]))
            if op == "extsi":
                return code.cast(op, args[0], "i64")
        if dialect == "math":
            if op == "exp":
                return functions.exp(code, args[0], bounded=self.not_positive(expr.args[0]))
            if op == "fma":
                return functions.fma(code, *args)
            if op in functions.KNOWN:
                return functions.call(code, op, *args)
        raise UnsupportedError(f"no code for {expr.op}")

    def _rounded(self, value: Result, expr: Apply) -> Result:
        """A result in single precision as the half that it is, where that decides something."""
        if not self.exact.roundings or expr.dtype not in ("f16", "bf16"):
            return value
        if expr.op not in _ROUNDED and not expr.op.startswith("math."):
            return value
        assert not isinstance(value, Ramp)
        if expr.dtype == "bf16":
            return replace(value, value=functions.as_bf16(self.code, value.value))
        return replace(value, value=widen(self.code, narrow(self.code, value.value, expr.dtype), expr.dtype))

    def _as_written(self, expr: Apply) -> bool:
        """Whether a quotient is no product with a reciprocal."""
        return self.exact.quotients or (self.exact.leaving and reproducible(self._inlined(expr), self.chain))

    def _divide(self, over: Result, under: Uniform, expr: Apply) -> Result:
        # One division per row and a product or two per element: a division of vectors takes as long as ten.
        if self._as_written(expr) and not _is_power(expr.args[1]):
            return Lanes(self.code.op("divf", self.lanes(over), self.code.broadcast(under.value)))
        if self.moderate(expr.args[1]):
            inverse = arith.divf(self.code.like(1.0, under.value), under.value)
            return Lanes(arith.mulf(self.lanes(over), self.code.broadcast(inverse)))
        scale, inverse = functions.reciprocal(self.code, under.value)
        scaled = self.code.op("mulf", self.lanes(over), self.code.broadcast(scale))
        return Lanes(arith.mulf(scaled, self.code.broadcast(inverse)))

    def _ramp(self, op: str, a: Result, b: Result, args: tuple[Expr, ...]) -> Ramp | None:
        if isinstance(a, Lanes) or isinstance(b, Lanes):
            return None
        if op == "muli":
            for ramp, factor in ((a, args[1]), (b, args[0])):
                if isinstance(ramp, Ramp) and isinstance(factor, Const) and abs(int(factor.value)) < 2**16:
                    scaled = arith.muli(ramp.base, self.code.constant(int(factor.value), "i64"))
                    return Ramp(scaled, ramp.step * int(factor.value), ramp.small)
            return None
        sign = 1 if op == "addi" else -1
        base = self.code.op(op, *(x.base if isinstance(x, Ramp) else x.value for x in (a, b)))
        steps = [x.step if isinstance(x, Ramp) else 0 for x in (a, b)]
        return Ramp(base, steps[0] + sign * steps[1], a.small and b.small)

    def _ramp_to_float(self, ramp: Ramp, dtype: str) -> Lanes:
        code = self.code
        base = code.broadcast(code.cast("trunci", ramp.base, "i32"))
        return Lanes(code.cast("sitofp", code.op("addi", base, code.iota(ramp.step)), dtype))

    def _compare_integers(self, predicate: str, a: Result, b: Result) -> Result:
        code = self.code
        comparison = getattr(arith.CmpIPredicate, predicate)
        if isinstance(a, Uniform) and isinstance(b, Uniform):
            return Uniform(arith.cmpi(comparison, a.value, b.value))
        if isinstance(a, Lanes) or isinstance(b, Lanes) or predicate[0] == "u":
            return Lanes(arith.cmpi(comparison, self.lanes(a), self.lanes(b)))
        # base + step * lane ? 0, as a comparison of the lane's part with minus the base, cut to 32 bits
        difference = self._ramp("subi", a, b, ())
        assert difference is not None
        zero = code.constant(0, "i64")
        if difference.step == 0:
            return Uniform(arith.cmpi(comparison, difference.base, zero))
        bound = arith.subi(zero, difference.base)
        bound = arith.maxsi(arith.minsi(bound, code.constant(2**30, "i64")), code.constant(-(2**30), "i64"))
        bound = code.broadcast(code.cast("trunci", bound, "i32"))
        return Lanes(arith.cmpi(comparison, code.iota(difference.step), bound))

    def not_positive(self, expr: Expr) -> bool:
        """Whether an expression is at most 0 or NaN, because it is ``x - max(x)``."""
        expr = self._inlined(expr)
        if not (isinstance(expr, Apply) and expr.op == "arith.subf" and isinstance(expr.args[1], Read)):
            return False
        name, _, moment = expr.args[1].name.partition(".")
        peak = self.chain.values.get(name)
        if not (isinstance(peak, Reduce) and peak.combine in ("max", "maxnum")):
            return False
        left = expr.args[0]
        if isinstance(left, Read) and left.name in (f"{name}.old", f"{name}.from_old"):
            return moment in ("new", "safe")
        return left == self._inlined(peak.expr)

    def moderate(self, expr: Expr) -> bool:
        """Whether an expression has a normal reciprocal (or is NaN): a constant, or a sum of ``exp(x - max(x))``.

        Such a sum has the term exp(0), and no term is larger.
        """
        expr = self._inlined(expr)
        if isinstance(expr, Const):
            return 2.0**-100 < abs(expr.value) < 2.0**100
        if not isinstance(expr, Read) or not isinstance(step := self.chain.values.get(expr.name), Reduce):
            return False
        term = self._inlined(step.expr)
        if step.combine != "add" or not isinstance(term, Apply) or term.op != "math.exp" or step.initial.value != 0:
            return False
        if not self.not_positive(term.args[0]):
            return False
        assert isinstance(term.args[0], Apply)
        assert isinstance(term.args[0].args[1], Read)
        peak = self.chain.values[term.args[0].args[1].name.partition(".")[0]]
        return isinstance(peak, Reduce) and peak.over == step.over and peak.initial.value == -pymath.inf

    def _inlined(self, expr: Expr) -> Expr:
        for _ in range(64):
            known = reads(expr)
            maps = {name: self.aliases[name] for name in known if name in self.aliases}
            maps |= {name: step.expr for name in known if isinstance(step := self.chain.values.get(name), Map)}
            if not maps:
                return expr
            expr = substitute(expr, maps)
        return expr


def _is_power(expr: Expr) -> bool:
    """Whether a number is a power of two, with which the reciprocal gives the same."""
    return isinstance(expr, Const) and pymath.isfinite(expr.value) and abs(pymath.frexp(expr.value)[0]) == 0.5


def _of_one_and_erf(expr: Apply) -> Expr | None:
    """The x of ``1 + erf(x)``."""
    for one, other in (expr.args, expr.args[::-1]):
        if isinstance(one, Const) and one.value == 1 and isinstance(other, Apply) and other.op == "math.erf":
            return other.args[0]
    return None


def inputs(code: KernelBuilder, chain: Chain, sizes: Mapping[str, Size]) -> dict[str, Source]:
    """Sources of those of a chain's inputs that the kernel reads as they are."""
    return {
        value.name: load(code, code.memory[value.name], value.dtype, value.axes, sizes)
        for value in chain.inputs
        if value.name in code.memory and value.name not in chain.windowed
    }
