"""What a compiled program takes and returns: the contract between the frontend, the artifact and the runtime."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from covan_mlir.artifacts.pytree import Tree
from covan_mlir.artifacts.schema import (
    SIGNATURE_FORMAT,
    Check,
    MutatedBuffer,
    ResultKind,
    StoredConstant,
    StoredLeaf,
    StoredScalar,
    StoredSignature,
    StoredTap,
    StoredTensor,
)
from covan_mlir.support.typed_json import constant, scalar

Dim = int | str
"""A static size, or an expression over symbols (``"s0"``, ``"2*s0 + 1"``)."""

PARAMETER_SCOPE = "covan"
"""Scope of the named parameters through which a program reads weights from outside."""


@dataclass(frozen=True)
class Leaf:
    """One leaf of the inputs or outputs.

    Attributes:
        kind: ``tensor``; ``scalar`` (a Python number that the program computes with or returns); ``constant`` (a
            value fixed when the model was exported: an int, float, bool, str or None).
        dtype: of a tensor, as torch spells it without the prefix (``float32``); of a scalar its Python type's name.
        shape: of a tensor.
        symbol: of a scalar: the symbol it binds, if any.
        value: of a constant.
        name: the argument's name as export gives it; for messages.
        mutated: the program also returns this input's new value, which is written back.
        fixed: of a tensor whose elements are built into the program, these, flat: calls have to bring the same.
    """

    kind: Literal["tensor", "scalar", "constant"]
    dtype: str = ""
    shape: tuple[Dim, ...] = ()
    symbol: str = ""
    value: Any = None
    name: str = ""
    mutated: bool = False
    fixed: tuple[int | float, ...] | None = None

    def type_string(self) -> str:
        """As messages show it: ``float32[2, s0]``, ``int``, ``constant 3``."""
        if self.kind == "tensor":
            return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return self.dtype if self.kind == "scalar" else f"constant {self.value!r}"

    def stored(self) -> StoredLeaf:
        """As the artifact holds it."""
        if self.kind == "tensor":
            return StoredTensor(self.name, self.dtype, self.shape, self.mutated, self.fixed)
        if self.kind == "scalar":
            return StoredScalar(self.name, self.dtype, self.symbol)
        return StoredConstant(self.name, constant(self.value))

    @staticmethod
    def of(stored: StoredLeaf) -> Leaf:
        """The inverse of `stored`."""
        match stored:
            case StoredTensor():
                return Leaf(
                    "tensor", stored.dtype, stored.shape, name=stored.name, mutated=stored.mutated, fixed=stored.fixed
                )
            case StoredScalar():
                return Leaf("scalar", stored.dtype, symbol=stored.symbol, name=stored.name)
            case StoredConstant():
                return Leaf("constant", value=scalar(stored.value), name=stored.name)


@dataclass(frozen=True)
class Tap:
    """What an attached operator gives beside the model's own results."""

    name: str
    tree: Tree
    leaves: tuple[Leaf, ...]

    def stored(self) -> StoredTap:
        """As the artifact holds it."""
        return StoredTap(self.name, self.tree.stored(), tuple(leaf.stored() for leaf in self.leaves))

    @staticmethod
    def of(stored: StoredTap) -> Tap:
        """The inverse of `stored`."""
        return Tap(stored.name, Tree.of(stored.tree), tuple(map(Leaf.of, stored.leaves)))


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs and state of the entry point.

    The program's parameters are the tensors and scalars among ``inputs`` in order, then ``states``. Its results are
    named by ``results``: ``("state", i)``, ``("input", i)`` (new value of mutated input leaf i), ``("output", i)``,
    ``("tap", i)`` (leaf i of all taps together), or ``("faults", i)`` (whether check i of those that it makes fails).

    Attributes:
        in_tree: structure of ``(args, kwargs)``.
        parameters: names of the model's positional-or-keyword parameters, so that calls may pass either way.
        symbols: inclusive range of each symbol in dynamic shapes; None stands for no bound.
        checks: of indices and divisors.
    """

    in_tree: Tree
    out_tree: Tree
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    states: tuple[MutatedBuffer, ...] = ()
    results: tuple[tuple[ResultKind, int], ...] = ()
    parameters: tuple[str, ...] = ()
    symbols: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    function: str = "main"
    taps: tuple[Tap, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def computed_checks(self) -> tuple[Check, ...]:
        """The checks that the program makes."""
        return tuple(check for check in self.checks if check.argument is None)

    @property
    def tap_leaves(self) -> tuple[Leaf, ...]:
        """Leaves of all taps, in order."""
        return tuple(leaf for tap in self.taps for leaf in tap.leaves)

    @property
    def size_names(self) -> tuple[tuple[str, ...], ...]:
        """For each tensor and scalar among the inputs: its sizes as expressions over symbols, "" where they are
        numbers; of a scalar the symbol that it binds."""
        names: list[tuple[str, ...]] = []
        for leaf in self.inputs:
            if leaf.kind == "tensor":
                names.append(tuple(size if isinstance(size, str) else "" for size in leaf.shape))
            elif leaf.kind == "scalar":
                names.append((leaf.symbol,))
        return tuple(names)

    @property
    def changed(self) -> tuple[int, ...]:
        """Places of the program's parameters that it gives new values: inputs that it changes, and all states."""
        given = [leaf for leaf in self.inputs if leaf.kind != "constant"]
        mutated = [place for place, leaf in enumerate(given) if leaf.mutated]
        return (*mutated, *range(len(given), len(given) + len(self.states)))

    def stored(self) -> StoredSignature:
        """As the artifact holds it."""
        return StoredSignature(
            format=SIGNATURE_FORMAT,
            function=self.function,
            in_tree=self.in_tree.stored(),
            out_tree=self.out_tree.stored(),
            inputs=tuple(leaf.stored() for leaf in self.inputs),
            outputs=tuple(leaf.stored() for leaf in self.outputs),
            states=self.states,
            results=self.results,
            parameters=self.parameters,
            symbols=self.symbols,
            taps=tuple(tap.stored() for tap in self.taps),
            checks=self.checks,
        )

    @staticmethod
    def of(stored: StoredSignature) -> Signature:
        """The inverse of `stored`."""
        return Signature(
            in_tree=Tree.of(stored.in_tree),
            out_tree=Tree.of(stored.out_tree),
            inputs=tuple(map(Leaf.of, stored.inputs)),
            outputs=tuple(map(Leaf.of, stored.outputs)),
            states=stored.states,
            results=stored.results,
            parameters=stored.parameters,
            symbols=stored.symbols,
            function=stored.function,
            taps=tuple(map(Tap.of, stored.taps)),
            checks=stored.checks,
        )


_OPERATORS: dict[type[ast.operator], Callable[[int, int], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


_EXPRESSION = re.compile(r"[\w\s+*/%()-]{1,2000}", re.ASCII)


def evaluate(expression: str, symbols: Mapping[str, int]) -> int | None:
    """Value of a dimension's expression; None while a symbol is unbound, or for more than + - * // %."""

    def visit(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return symbols[name]
            case ast.BinOp(left=left, op=op, right=right):
                return int(_OPERATORS[type(op)](visit(left), visit(right)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -visit(operand)
        raise KeyError(ast.dump(node))

    parsed = _parsed(expression)
    try:
        return None if parsed is None else visit(parsed)
    except (KeyError, ArithmeticError, RecursionError):
        return None


@lru_cache(4096)
def _parsed(expression: str) -> ast.expr | None:
    if not _EXPRESSION.fullmatch(expression):
        return None
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):  # the latter two for parentheses in parentheses
        return None
