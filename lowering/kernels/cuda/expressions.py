"""Expressions of a chain as statements over tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.exactness import exactness
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Extent, Index, Read, Window, walk
from covan_mlir.lowering.kernels.cuda.integer_products import integer_sum
from covan_mlir.lowering.kernels.cuda.layout import Layout
from covan_mlir.lowering.kernels.cuda.operations import (
    LIBRARY,
    NEUTRAL,
    TYPES,
    bare,
    literal,
    operation,
    reduction,
    short_name,
)
from covan_mlir.lowering.kernels.cuda.operations import limits as limits_of
from covan_mlir.lowering.kernels.cuda.origins import momentless
from covan_mlir.lowering.kernels.cuda.products import product
from covan_mlir.lowering.kernels.cuda.tiles import I32, Block, FreshNames, Text, Tile, computed, constant
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope

LOG2E = 1 / math.log(2)
_HALVES = ("f16", "bf16")
_CHEAP = ("addf", "subf", "mulf", "negf", "addi", "subi", "muli", "cmpi", "cmpf", "andi", "ori", "xori")
_PASSED = ("index_cast", "extsi", "trunci")
_SMALL = 2**30
MAX_TILE = 1 << 16
"""Elements of a tile that is not the operand of a matrix instruction."""


class TileEvaluator:
    """Turns expressions into statements of the innermost block that has all that they read.

    Args:
        scope: axes of everything that expressions read.
        pointers: parameters that hold inputs and outputs, by value.
        inner: reductions that are computed where they are read.
        origins: which step of the chain as it was given computes an expression.
        fold: positive factors move through maxima into exponentials of base 2. Rounds differently: for halves.
        precision: of matrix products of f32: ``tf32x3``, ``tf32`` or ``ieee``.
    """

    def __init__(
        self,
        text: Text,
        scope: Scope,
        names: FreshNames,
        pointers: Mapping[str, str],
        inner: frozenset[str],
        origins: Mapping[Expr, str],
        fold: bool,
        precision: str,
    ) -> None:
        self.text, self.scope, self.names, self.pointers = text, scope, names, pointers
        self.inner, self.origins, self.precision = inner, origins, precision
        self.exact = exactness(scope.chain)
        self.fold = fold and not self.exact.arithmetic
        self.blocks = [Block()]
        self.helpers: set[str] = set()
        self._performed: frozenset[str] = frozenset()  # steps of the chain whose statements are being written
        self._variables: dict[Expr, str] = {}  # what to call the values of expressions

    @property
    def chain(self) -> Chain:
        """The chain whose values are read."""
        return self.scope.chain

    @property
    def layout(self) -> Layout:
        """Where its axes are."""
        return self.text.layout

    # Statements

    @contextmanager
    def nested(self, block: Block) -> Iterator[Block]:
        """Statements go to a block inside of the innermost one."""
        self.blocks.append(block)
        try:
            yield block
        finally:
            self.blocks.pop()

    @contextmanager
    def _performing(self, step: str | None) -> Iterator[None]:
        """Statements belong to a step of the chain; None: to what they belong to anyway."""
        before = self._performed
        self._performed = before if step is None else frozenset({step})
        try:
            yield
        finally:
            self._performed = before

    def emit(self, line: str, steps: frozenset[str] = frozenset(), depth: int = -1) -> None:
        """Appends a statement to a block."""
        self.blocks[depth].lines.append((line, steps))

    def assign(self, wanted: str, tile: Tile, depth: int = -1, of: Expr | None = None) -> Tile:
        """A tile in a variable.

        Args:
            of: the expression that it is the value of.
        """
        plain = self.text.plain(tile, computed(tile.dtype) if tile.dtype in _HALVES else tile.dtype)
        text = plain.text if plain.const is None else self.text.full(plain, plain.dims, plain.dtype)
        name = self.names.fresh(self._variables.get(of, wanted) if of is not None else wanted)
        self.emit(f"{name} = {bare(text)}", plain.steps | self._performed, depth)
        return Tile(name, plain.dims, plain.dtype, limits=plain.limits)

    def named(self, name: str, expr: Expr, dtype: str, depth: int, step: str) -> Tile:
        """The value of an expression in a variable with a name, unless it is one already, or a multiple of one."""
        with self._performing(step if step in self.chain.values else None):
            self._variables[expr] = name
            tile = self.tile(expr)
            if tile.const is not None:
                return replace(tile, dtype=computed(dtype))
            if tile.factor != 1.0:
                return replace(tile, steps=tile.steps | {step})
            return tile if tile.text.isidentifier() else self.assign(name, tile, depth)

    def valid(self, dim: str) -> str | None:
        """Mask of the positions of a dimension that exist, if not all do."""
        return next((b.valid[dim] for b in reversed(self.blocks) if dim in b.valid), None)

    def depth(self, expr: Expr) -> int:
        """The outermost block in which all that an expression reads is known."""
        if len(self.blocks) == 1:
            return 0
        for node in walk(expr):
            if isinstance(node, Index):
                dim = self.layout.dim_of(node.axis)
                if dim is not None and dim.name == self.layout.stream:
                    return 1
            elif isinstance(node, Window):
                if self.layout.stream in self.layout.dims_of(node.axes):
                    return 1
            elif isinstance(node, Read):
                if node.name in self.blocks[1].named:
                    return 1
                if node.name in self.blocks[0].named:
                    continue
                value = self.chain.values.get(node.name)
                dims = self.layout.dims_of(frozenset(value.axes)) if value is not None else ()
                if self.layout.stream in dims:
                    return 1
                if isinstance(value, Map | Reduce) and self.depth(value.expr):
                    return 1
        return 0

    # Expressions

    def tile(self, expr: Expr) -> Tile:
        """The value of an expression."""
        depth = self.depth(expr)
        block = self.blocks[depth]
        if expr not in block.tiles:
            tile = self._tile(expr, depth)
            if depth == 0 and len(self.blocks) > 1 and isinstance(expr, Apply) and tile.const is None:
                tile = tile if tile.text.isidentifier() else self.assign("t", tile, 0, expr)
            block.tiles[expr] = tile
        return block.tiles[expr]

    def value(self, expr: Expr) -> Tile:
        """The value of an expression in the type that it is computed in, without a pending factor."""
        return self.text.plain(self.tile(expr), computed(expr.dtype))

    def _tile(self, expr: Expr, depth: int) -> Tile:
        match expr:
            case Const():
                return constant(expr)
            case Index(axis):
                return self.text.position(axis)
            case Extent(axis):
                return constant(Const(self.layout.sizes[axis], "i64"))
            case Read(name):
                return self._read(name, depth)
            case Window():
                return self._window(expr, depth)
            case Apply():
                with self._performing(self.origins.get(momentless(self.scope.inlined(expr)))):
                    return self._apply(expr, depth)
        raise UnsupportedError(f"no code for {expr}")

    def _read(self, name: str, depth: int) -> Tile:
        for block in reversed(self.blocks):
            if name in block.named:
                return block.named[name]
        value = self.chain.values.get(name)
        if isinstance(value, Input):
            return self.load(value.name, value.axes, value.dtype, depth)
        if isinstance(value, Map):
            return self.named(name, value.expr, value.dtype, depth, name)
        if isinstance(value, Reduce) and name in self.inner:
            return self.reduce(value, depth)
        raise UnsupportedError(f"{name} is read before it is computed")

    def element(self, expr: Read | Window) -> Tile:
        """An input's elements as they are in memory; 0, or what is outside of a window, where there are none."""
        if isinstance(expr, Window):
            return self.tile(expr)
        value, depth = self.chain.values[expr.name], self.depth(expr)
        known = self.blocks[depth].elements
        if expr not in known:
            known[expr] = self._stored(value.name, value.axes, value.dtype, depth)
        return known[expr]

    def load(self, name: str, axes: tuple[str, ...], dtype: str, depth: int, lead: str = "") -> Tile:
        """Reads a tensor's elements of the tile at hand."""
        tile = self._stored(name, axes, dtype, depth, lead)
        steps = frozenset({name})
        if dtype == "i1":
            return self.assign(tile.text, replace(tile, text=f"({tile.text} != 0)", steps=steps), depth)
        if dtype in ("i8", "i16", "i32"):
            wide = replace(tile, text=f"{tile.text}.to(tl.int64)", dtype="i64", steps=steps)
            return self.assign(tile.text, wide, depth)
        return tile

    def _stored(self, name: str, axes: tuple[str, ...], dtype: str, depth: int, lead: str = "") -> Tile:
        scalars, offsets, dims = self.text.address(axes, lead)
        base = self.pointers[name]
        if scalars and not lead:
            base = self._base(name, scalars)
        elif scalars:
            base = f"{base} + {scalars}"
        variable = self.names.fresh(name)
        mask = self._mask(dims)
        masked = f", mask={mask}, other=0" if mask else ""
        self.emit(f"{variable} = tl.load({base}{f' + {offsets}' if offsets else ''}{masked})", frozenset({name}), depth)
        return Tile(variable, dims, dtype)

    def _window(self, window: Window, depth: int) -> Tile:
        """Reads an input at affine positions, and a number where one of them lies outside of it."""
        axes, sizes = self.chain.values[window.name].axes, self.chain.known_sizes
        inside: list[Tile] = []
        terms: list[tuple[str, int]] = []
        offset, stride = 0, 1
        for axis, at in reversed(list(zip(axes, window.at, strict=True))):
            terms += [(name, coefficient * stride) for name, coefficient in at.terms]
            offset += at.offset * stride
            stride *= sizes[axis]
            low, high = at.bounds(sizes)
            if low < 0 or high >= sizes[axis]:
                position = self.text.affine(at)
                variable = self.assign(f"{window.name}_{axis}", position, depth if self._streams(position) else 0)
                conditions = ["{0} >= 0"] * (low < 0) + [f"{{0}} < {sizes[axis]}"] * (high >= sizes[axis])
                inside += [replace(variable, text=f"({text.format(variable.text)})") for text in conditions]
        place = self.text.affine(Affine.of(terms, offset))
        dims = self.text.union(place, *inside)
        masks = [self.text.spread(tile.text, tile.dims, dims) for tile in inside]
        masks += [self.text.spread(ok, (dim,), dims) for dim in dims if (ok := self.valid(dim)) is not None]
        masked = f", mask={' & '.join(masks)}, other={literal(window.outside.value, window.dtype)}" if masks else ""
        element = self.names.fresh(window.name)
        pointer = f"{self.pointers[window.name]} + {self.text.spread(place.text, place.dims, dims)}"
        self.emit(f"{element} = tl.load({pointer}{masked})", frozenset({window.name}), depth)
        return Tile(element, dims, window.dtype)

    def _streams(self, tile: Tile) -> bool:
        return self.layout.stream in tile.dims

    def store(self, name: str, axes: tuple[str, ...], dtype: str, tile: Tile, lead: str = "") -> None:
        """Writes a tensor's elements of the tile at hand."""
        scalars, offsets, dims = self.text.address(axes, lead)
        base = self._base(name, scalars) if scalars and not lead else self.pointers[name]
        base = f"{base} + {scalars}" if scalars and lead else base
        if extra := set(tile.dims) - set(dims):
            raise UnsupportedError(f"{name} has no position on {sorted(extra)}")
        plain = self.text.plain(tile, computed(dtype))
        kept = (
            self.text.full(plain, dims, computed(dtype))
            if plain.const is not None or plain.dims != dims
            else plain.text
        )
        stored = "i8" if dtype == "i1" else dtype
        text = kept if stored == computed(dtype) else f"{kept}.to({TYPES[stored]})"
        mask = self._mask(dims)
        self.emit(
            f"tl.store({base}{f' + {offsets}' if offsets else ''}, {bare(text)}{f', mask={mask}' if mask else ''})",
            plain.steps | {name},
        )

    def _base(self, name: str, scalars: str) -> str:
        known = self.blocks[0].named.get(f"@{name}")
        if known is None:
            variable = self.names.fresh(f"{name}_at")
            self.emit(f"{variable} = {self.pointers[name]} + {scalars}", depth=0)
            known = self.blocks[0].named[f"@{name}"] = Tile(variable)
        return known.text

    def _mask(self, dims: tuple[str, ...]) -> str:
        parts = [self.text.spread(ok, (d,), dims) for d in dims if (ok := self.valid(d)) is not None]
        return " & ".join(parts)

    # Operations

    def _apply(self, expr: Apply, depth: int) -> Tile:
        op, _, predicate = expr.op.partition(".")[2].partition(":")
        if op == "select":
            return self._select(expr, depth)
        args = [self.tile(arg) for arg in expr.args]
        steps = frozenset().union(*(arg.steps for arg in args))
        dtype = computed(expr.dtype)
        if op in ("extsi", "extui", "sitofp", "uitofp"):
            args[0] = self._narrow(expr.args[0], args[0], signed=op in ("extsi", "sitofp"))
        if op in (*_PASSED, "extui") and expr.dtype != "i1" and expr.args[0].dtype != "i1":
            return args[0]
        if op in ("extf", "truncf") and computed(expr.args[0].dtype) == dtype:
            return self._rounded(args[0], expr)
        if op in ("extf", "truncf", "sitofp", "uitofp", "fptosi", "fptoui", "extsi", "extui", "trunci"):
            if args[0].const is not None:
                return constant(Const(args[0].const, expr.dtype))
            converted = self.text.plain(args[0], args[0].dtype if args[0].dtype not in _HALVES else "f32")
            if expr.dtype == "i1":
                return replace(converted, text=f"({converted.text} != 0)", dtype="i1", limits=None)
            sign = "-" if op == "extsi" else ""  # a set bit is minus one
            if op == "fptosi" and expr.dtype in ("i8", "i16", "i32"):
                return replace(converted, text=f"({converted.text}.to(tl.int32))", dtype="i32", limits=I32)
            return replace(converted, text=f"({sign}{converted.text}.to({TYPES[dtype]}))", dtype=dtype, limits=None)
        if dtype == "i1" and op in ("andi", "ori", "xori"):
            return self._logic(op, args, steps)
        if op in ("addi", "subi", "muli", "cmpi", "maxsi", "minsi", "divsi", "remsi", "floordivsi"):
            return self._integers(expr, op, predicate, args, steps, depth)
        if self.fold and dtype == "f32":
            folded = self._exponential(expr, depth) if op == "exp" else self._folded(op, args)
            if folded is not None:
                return folded
        wanted = [computed(arg.dtype) for arg in expr.args]
        plain = [self.text.plain(arg, kind) for arg, kind in zip(args, wanted, strict=True)]
        # Constants take the other operand's type, except in functions of the library, which are chosen by all of them.
        for n, arg in enumerate(plain):
            if arg.const is not None and (op in LIBRARY or (n == 0 and all(a.const is not None for a in plain))):
                plain[n] = replace(arg, text=self.text.full(arg, (), wanted[n]), const=None)
        name = f"{expr.op}_f64" if op == "tanh" and dtype == "f64" else expr.op
        if op in ("divf", "sqrt") and dtype == "f32" and (self.exact.arithmetic or self.exact.leaving):
            name = f"{expr.op}_rn"
        return self._rounded(self._operation(name, plain, dtype, steps, depth, expr), expr)

    def _narrow(self, expr: Expr, tile: Tile, *, signed: bool) -> Tile:
        """An integer of few bits, which is held in more, as the number that these bits are."""
        if expr.dtype not in ("i8", "i16", "i32"):
            return tile
        count = int(expr.dtype[1:])
        if tile.const is not None:
            return tile if signed else constant(Const(int(tile.const) % 2**count, "i64"))
        if not signed:
            plain = self.text.plain(tile, "i64")
            return replace(plain, text=f"({plain.text} & {2**count - 1})", limits=(0, 2**count - 1))
        cut = self.scope.inlined(expr)
        if not isinstance(cut, Apply) or cut.op != "arith.trunci":
            return tile
        return replace(tile, text=f"({tile.text}.to({TYPES[expr.dtype]}).to({TYPES[tile.dtype]}))", limits=None)

    def _rounded(self, tile: Tile, expr: Apply) -> Tile:
        """A number in single precision as the half that it is, where that decides something."""
        if not self.exact.roundings or expr.dtype not in _HALVES or tile.const is not None:
            return tile
        plain = self.text.plain(tile, "f32")
        return replace(plain, text=f"({plain.text}.to({TYPES[expr.dtype]}).to(tl.float32))")

    def _operation(self, op: str, plain: list[Tile], dtype: str, steps: frozenset[str], depth: int, of: Expr) -> Tile:
        dims = self.text.union(*plain)
        text, helper = operation(op, [self.text.spread(arg.text, arg.dims, dims) for arg in plain])
        if helper is not None:
            self.helpers.add(helper)
        tile = Tile(text, dims, dtype, steps=steps)
        cheap = op.partition(".")[2].partition(":")[0] in _CHEAP
        return tile if cheap and len(text) < 80 else self.assign(short_name(op), tile, depth, of)

    def _select(self, expr: Apply, depth: int) -> Tile:
        condition = self.scope.inlined(expr.args[0])
        if any(condition in block.true for block in self.blocks):
            return self.tile(expr.args[1])
        test, yes, no = (self.tile(arg) for arg in expr.args)
        if test.const is not None:
            return yes if test.const else no
        dtype = computed(expr.dtype)
        factor = 1.0
        if self.fold and dtype == "f32":
            # A factor passes by infinities.
            if no.const is not None and math.isinf(no.const) and yes.const is None:
                factor, yes = yes.factor, replace(yes, factor=1.0)
            elif yes.const is not None and math.isinf(yes.const) and no.const is None:
                factor, no = no.factor, replace(no, factor=1.0)
        if dtype[0] == "i" and dtype != "i1":
            dtype = "i32" if {yes.dtype, no.dtype} == {"i32"} else "i64"
        values = [self.text.plain(x, dtype) for x in (yes, no)]
        if all(x.const is not None for x in values):
            values[0] = replace(values[0], text=self.text.full(values[0], (), dtype), const=None)
        dims = self.text.union(test, *values)
        texts = [self.text.spread(x.text, x.dims, dims) for x in (test, *values)]
        steps = test.steps | yes.steps | no.steps
        tile = Tile(f"tl.where({', '.join(texts)})", dims, dtype, steps=steps)
        return replace(self.assign("chosen", tile, depth, expr), factor=factor)

    def _logic(self, op: str, args: list[Tile], steps: frozenset[str]) -> Tile:
        for this, other in (args, reversed(args)):
            if this.const is not None:
                if op == "xori":
                    return replace(other, text=f"({other.text} == 0)") if this.const else other
                neutral = bool(this.const) == (op == "andi")
                return other if neutral else this
        dims = self.text.union(*args)
        text, _ = operation(f"arith.{op}", [self.text.spread(arg.text, arg.dims, dims) for arg in args])
        return Tile(text, dims, "i1", steps=steps)

    def _integers(
        self, expr: Apply, op: str, predicate: str, args: list[Tile], steps: frozenset[str], depth: int
    ) -> Tile:
        limits = limits_of(op, [arg.limits for arg in args])
        small = all(arg.dtype == "i32" for arg in args)
        if op == "cmpi":
            plain = args
            if predicate[0] == "u":
                if not all(arg.limits is not None and arg.limits[0] >= 0 for arg in args):
                    raise UnsupportedError(f"no code for {expr.op} of what may be negative")
                predicate = "s" + predicate[1:]
            if all(arg.const is not None for arg in plain):
                plain = [replace(plain[0], text=self.text.full(plain[0], (), "i64"), const=None), plain[1]]
            return self._operation(f"arith.cmpi:{predicate}", plain, "i1", steps, depth, expr)
        fits = small and limits is not None and max(abs(limits[0]), abs(limits[1])) < _SMALL
        # In 32 bits the program's own integers wrap around as these do.
        wraps = expr.dtype == "i32" and small and limits is not None and op in ("addi", "subi", "muli")
        dtype = "i32" if fits or wraps else "i64"
        plain = [self.text.plain(arg, dtype) for arg in args]
        if all(arg.const is not None for arg in plain):
            plain[0] = replace(plain[0], text=self.text.full(plain[0], (), dtype), const=None)
        if op in ("divsi", "remsi", "floordivsi") and not (
            all(arg.limits is not None and arg.limits[0] >= 0 for arg in args)
        ):
            raise UnsupportedError(f"no code for {expr.op} of what may be negative")
        name = "arith.divsi" if op == "floordivsi" else expr.op
        return replace(
            self._operation(name, plain, dtype, steps, depth, expr), limits=limits if fits else I32 if wraps else None
        )

    def _folded(self, op: str, args: list[Tile]) -> Tile | None:
        # A positive number as a pending factor of a tile.
        if op == "mulf":
            for this, other in (args, reversed(args)):
                if this.const is not None and other.const is None and 0 < this.const < math.inf:
                    return replace(self.text.plain(replace(other, factor=1.0), "f32"), factor=other.factor * this.const)
        if op == "divf" and args[1].const is not None and args[0].const is None and 0 < args[1].const < math.inf:
            return replace(self.text.plain(replace(args[0], factor=1.0), "f32"), factor=args[0].factor / args[1].const)
        return None

    def _exponential(self, expr: Apply, depth: int) -> Tile | None:
        # exp(f * a - b) as exp2((f * log2 e) * a - log2 e * b): one multiply-add for each element.
        exponent = expr.args[0]
        exponent = self.scope.inlined(exponent) if isinstance(exponent, Read) else exponent
        if not (isinstance(exponent, Apply) and exponent.op == "arith.subf"):
            return None
        left, right = (self.tile(arg) for arg in exponent.args)
        if left.const is not None or right.const is not None or not set(right.dims) < set(left.dims):
            return None
        key = Apply("arith.mulf", (exponent.args[1], Const(LOG2E, "f32")), "f32")
        where = self.depth(exponent.args[1])
        if key not in self.blocks[where].tiles:
            scaled = self.text.plain(replace(right, factor=right.factor * LOG2E), "f32")
            self.blocks[where].tiles[key] = self.assign("in_base_2", scaled, where)
        right = self.blocks[where].tiles[key]
        value = self.text.plain(replace(left, factor=left.factor * LOG2E), "f32")
        dims = self.text.union(value, right)
        text = f"tl.exp2({value.text} - {self.text.spread(right.text, right.dims, dims)})"
        return self.assign("exp", Tile(text, dims, "f32", steps=left.steps), depth, expr)

    def is_weight(self, expr: Expr) -> bool:
        """Whether a value is at most 1 or NaN, because it is the exponential of ``x - max(x)``."""
        expr = self.scope.inlined(expr)
        if not (isinstance(expr, Apply) and expr.op == "math.exp" and isinstance(expr.args[0], Apply)):
            return False
        over, under = (*expr.args[0].args, expr, expr)[:2]
        if expr.args[0].op != "arith.subf" or not isinstance(under, Read):
            return False
        peak = self.chain.values.get(under.name.partition(".")[0])
        return isinstance(peak, Reduce) and peak.combine in ("max", "maxnum") and over == self.scope.inlined(peak.expr)

    # Reductions

    def reduce(self, step: Reduce, depth: int = -1) -> Tile:
        """A reduction over the dimensions of the tile at hand."""
        with self._performing(step.name.partition(".")[0]):
            over = self.layout.dims_of(frozenset(step.over))
            tile = product(self, step, over) if step.combine == "add" else None
            tile = tile or integer_sum(self, step, over)
            if tile is None:
                tile = self._reduce_elements(step, over)
            return replace(self.assign(step.name, replace(tile, factor=1.0), depth), factor=tile.factor)

    def _reduce_elements(self, step: Reduce, over: tuple[str, ...]) -> Tile:
        tile = self.tile(step.expr)
        dtype = computed(step.dtype)
        factor = 1.0
        if self.fold and step.combine in ("max", "maxnum", "min", "minnum") and tile.const is None:
            factor, tile = tile.factor, replace(tile, factor=1.0)  # rounding is monotone
        tile = self.text.plain(tile, dtype)
        dims = self.text.union(tile, Tile("", over))
        elements = math.prod(dim.block for dim in self.layout.dims if dim.name in dims)
        if elements > MAX_TILE:
            raise UnsupportedError(f"{step.name} takes a tile of {elements} elements, which is not a matrix product")
        text = self.text.full(tile, dims, dtype)
        integer = dtype[0] == "i"
        if dtype == "i1":
            text = f"{text}.to(tl.int32)"
        masks = [self.text.spread(ok, (dim,), dims) for dim in over if (ok := self.valid(dim)) is not None]
        if masks:
            text = f"tl.where({' & '.join(masks)}, {bare(text)}, {self._neutral(step, dtype)})"
        for dim in over:
            text, helper = reduction(step.combine, integer, text, dims.index(dim))
            self.helpers |= {helper} if helper else set()
            dims = tuple(other for other in dims if other != dim)
        if dtype == "i1":
            text = f"({text} != 0)"
        return Tile(text, dims, dtype, factor, steps=tile.steps)

    @staticmethod
    def _neutral(step: Reduce, dtype: str) -> str:
        if dtype[0] == "i" and dtype != "i1" and step.combine not in ("add", "mul", "or"):
            return {"max": str(-(2**63)), "min": str(2**63 - 1), "and": "-1"}[step.combine]
        return literal(NEUTRAL[step.combine], dtype)
