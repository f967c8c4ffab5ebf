"""The operations of a StableHLO module as those of the source: names, module paths, lines of the code behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from covan_mlir.errors import ExportError
from covan_mlir.frontend.sources import SourceNode
from covan_mlir.frontend.stablehlo.program import Module, Operation, Place
from covan_mlir.frontend.stablehlo.registry import key
from covan_mlir.frontend.translation.names import unique
from covan_mlir.provenance.model import Frame

_WRAPPED = re.compile(r"^(?:jit|pjit|jvp|vmap|transpose|checkpoint|remat|custom_jvp|custom_vjp)\((.*)\)$")
MOST = 100_000
"""Operations of a module, functions and loops written out."""


@dataclass(frozen=True)
class Step:
    """A function that is called, or a turn of a loop that is written out, on the way to an operation.

    Attributes:
        operation: the call, or the loop, by its number.
        place: of it, in `Module.places`.
        turn: of a loop, counted from zero.
    """

    operation: int
    place: int
    turn: int | None = None


Path = tuple[Step, ...]


@dataclass
class Ledger:
    """The operations of a module as they are translated: each at each place that it is called from, and in each turn.

    Constants are none: they are numbers and weights. What stands in functions of numbers (of reductions, of sorting)
    is no operation of its own.

    Attributes:
        operations: in order; those inside of others before these.
        paths: of each, how it is come to.
        reads: of each, those whose values it reads.
        known, sizes: those whose values translation computes, and those that only tell open sizes.
        given_back: those that give back an operand: those that compute it.
    """

    module: Module
    operations: list[Operation] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    reads: dict[int, frozenset[int]] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    given_back: dict[int, frozenset[int]] = field(default_factory=dict)
    _places: dict[tuple[Path, int], int] = field(default_factory=dict)

    def lookup(self, path: Path, operation: Operation) -> int | None:
        """The place of an operation that was met before."""
        return self._places.get((path, operation.id))

    def place(self, path: Path, operation: Operation) -> int:
        """The place of an operation; the next one where it is met for the first time.

        Raises:
            ExportError: there are very many.
        """
        known = self._places.setdefault((path, operation.id), len(self.operations))
        if known == len(self.operations):
            if known >= MOST:
                raise ExportError(f"the module has more than {MOST} operations")
            self.operations.append(operation)
            self.paths.append(path)
        return known

    def source_nodes(self) -> tuple[SourceNode, ...]:
        """The operations that actions are made of."""
        taken: set[str] = set()
        return tuple(self._source_node(place, taken) for place in range(len(self.operations)))

    def _source_node(self, place: int, taken: set[str]) -> SourceNode:
        operation, steps = self.operations[place], self.paths[place]
        own = self.module.places[operation.place]
        calls = [self.module.places[step.place] for step in steps]
        path: list[str] = []
        for step, call in zip(steps, calls, strict=True):
            path += _scopes(call.path) if step.turn is None else [*_rest(_scopes(call.path), path), f"turn_{step.turn}"]
        path += _rest(_scopes(own.path), path)
        name = path.pop() if own.path and path else key(operation).rpartition(".")[2]
        lines: Sequence[Place] = (own, *reversed(calls))
        frames = next((each.frames for each in lines if each.frames), ())
        read = self.given_back.get(place, self.reads.get(place, frozenset()))
        return SourceNode(
            name=unique(re.sub(r"[.\s]", "_", "/".join([*path, name])), taken),
            op=key(operation),
            module=".".join(path),
            frames=tuple(Frame(frame.file, frame.line, frame.function) for frame in frames),
            inputs=() if place in self.known else tuple(sorted(each for each in read if each < place)),
            view=place in self.sizes,
        )


def _rest(scopes: list[str], path: list[str]) -> list[str]:
    """Scopes behind those of a path that they begin with: locations inside of loops tell those of the loop again."""
    named = [scope for scope in path if not scope.startswith("turn_")]
    return scopes[len(named) :] if named and scopes[: len(named)] == named and len(scopes) > len(named) else scopes


def _scopes(path: str) -> list[str]:
    """``jit(f)/Dense_0/jit(relu)/max`` -> Dense_0, relu, max: scopes by name, the outermost function left out."""
    names = []
    for index, scope in enumerate(_split(path)):
        wrapped = _WRAPPED.match(scope)
        if wrapped is None:
            names.append(scope)
        elif index:
            names.append(wrapped[1])
    return [name for name in names if name]


def _split(path: str) -> list[str]:
    """At slashes that are not inside of brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(path):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append(path[start:index])
            start = index + 1
    return [*parts, path[start:]] if path else []
