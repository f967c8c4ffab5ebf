"""What a compiled program takes and returns: the contract between the frontend, the artifact and the runtime."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from covan_mlir.artifacts.pytree import Tree

Dim = int | str
"""A static size, or an expression over symbols (``"s0"``, ``"2*s0 + 1"``)."""

FORMAT = 1

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
    """

    kind: Literal["tensor", "scalar", "constant"]
    dtype: str = ""
    shape: tuple[Dim, ...] = ()
    symbol: str = ""
    value: Any = None
    name: str = ""
    mutated: bool = False

    def type_string(self) -> str:
        """As messages show it: ``float32[2, s0]``, ``int``, ``constant 3``."""
        if self.kind == "tensor":
            return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return self.dtype if self.kind == "scalar" else f"constant {self.value!r}"

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.kind == "tensor":
            row |= {"dtype": self.dtype, "shape": list(self.shape)}
            if self.mutated:
                row["mutated"] = True
        elif self.kind == "scalar":
            row |= {"dtype": self.dtype, "symbol": self.symbol}
        else:
            row["value"] = self.value
        return row

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Leaf:
        return Leaf(**{**row, "shape": tuple(row.get("shape", ()))})


@dataclass(frozen=True)
class State:
    """A buffer of the model that the program mutates: it is passed in after the user's inputs, and returned."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tap:
    """What an attached operator gives beside the model's own results."""

    name: str
    tree: Tree
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs and state of the entry point.

    The program's parameters are the tensors and scalars among ``inputs`` in order, then ``states``. Its results are
    named by ``results``: ``("state", i)``, ``("input", i)`` (new value of mutated input leaf i), ``("output", i)``, or
    ``("tap", i)`` (leaf i of all taps together).

    Attributes:
        in_tree: structure of ``(args, kwargs)``.
        parameters: names of the model's positional-or-keyword parameters, so that calls may pass either way.
        symbols: inclusive range of each symbol in dynamic shapes; None stands for no bound.
    """

    in_tree: Tree
    out_tree: Tree
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    states: tuple[State, ...] = ()
    results: tuple[tuple[str, int], ...] = ()
    parameters: tuple[str, ...] = ()
    symbols: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    function: str = "main"
    taps: tuple[Tap, ...] = ()

    @property
    def tap_leaves(self) -> tuple[Leaf, ...]:
        """Leaves of all taps, in order."""
        return tuple(leaf for tap in self.taps for leaf in tap.leaves)

    @property
    def size_names(self) -> tuple[tuple[str, ...], ...]:
        """For each tensor and scalar among the inputs: its sizes as expressions over symbols, "" where they are
        numbers; of a scalar the symbol that it binds."""
        found = []
        for leaf in self.inputs:
            if leaf.kind == "tensor":
                found.append(tuple(size if isinstance(size, str) else "" for size in leaf.shape))
            elif leaf.kind == "scalar":
                found.append((leaf.symbol,))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        row = {
            "format": FORMAT,
            "function": self.function,
            "in_tree": self.in_tree.to_json(),
            "out_tree": self.out_tree.to_json(),
            "inputs": [leaf.to_json() for leaf in self.inputs],
            "outputs": [leaf.to_json() for leaf in self.outputs],
            "states": [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in self.states],
            "results": [list(result) for result in self.results],
            "parameters": list(self.parameters),
            "symbols": {name: list(bounds) for name, bounds in self.symbols.items()},
        }
        if self.taps:
            row["taps"] = [
                {"name": tap.name, "tree": tap.tree.to_json(), "leaves": [leaf.to_json() for leaf in tap.leaves]}
                for tap in self.taps
            ]
        return row

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Signature:
        return Signature(
            in_tree=Tree.from_json(row["in_tree"]),
            out_tree=Tree.from_json(row["out_tree"]),
            inputs=tuple(Leaf.from_json(leaf) for leaf in row["inputs"]),
            outputs=tuple(Leaf.from_json(leaf) for leaf in row["outputs"]),
            states=tuple(State(s["name"], s["dtype"], tuple(s["shape"])) for s in row["states"]),
            results=tuple((kind, index) for kind, index in row["results"]),
            parameters=tuple(row["parameters"]),
            symbols={name: (low, high) for name, (low, high) in row["symbols"].items()},
            function=row["function"],
            taps=tuple(
                Tap(tap["name"], Tree.from_json(tap["tree"]), tuple(Leaf.from_json(leaf) for leaf in tap["leaves"]))
                for tap in row.get("taps", ())
            ),
        )


_OPERATORS: dict[type[ast.operator], Callable[[int, int], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


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

    try:
        return visit(ast.parse(expression, mode="eval").body)
    except (KeyError, SyntaxError, ArithmeticError):
        return None
