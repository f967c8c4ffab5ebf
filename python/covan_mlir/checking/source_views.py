"""The source of a program as functions of what is drawn at random, and which of its values hold the same elements."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Set
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from covan_mlir.checking.known_values import KnownValues
from covan_mlir.checking.layouts import Order, spread
from covan_mlir.checking.sizes import (
    Measure,
    Sizes,
    dimensions_of,
    has_read_numbers,
    has_symbols,
    measure,
    read_numbers,
)
from covan_mlir.checking.source_system import SourceSystem
from covan_mlir.checking.source_values import ROUNDING, SourceValues, Trial, is_pointwise, is_view
from covan_mlir.checking.tensors import Direct, UnevaluatedError, exactly
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import resource_name
from covan_mlir.provenance.control import ELEMENT, JOINS, STACKED
from covan_mlir.provenance.model import LineageData, Part

_VIEWS = 32
"""Values that a result is compared with."""

_BAGS = "embedding_bag"
"""In the name of operators of a weight, indices, and where in these each bag begins."""
_TOLD = 4096
"""Elements by which it is told whether an operator moves them."""
_MOVING = frozenset(
    {
        *("aten.clone.default", "aten._to_copy.default", "aten.alias.default", "aten.detach.default"),
        *("aten.lift_fresh_copy.default", "aten.flip.default", "aten.roll.default"),
        *("prims.convert_element_type.default", "prims.squeeze.default"),
        *(f"aten.{name}.{kind}" for name in ("add", "sub", "mul", "div") for kind in ("Tensor", "Scalar")),
    }
)
"""Operators that are no views and may give back their operand, or its elements in another order."""


class SourceViews:
    """The source of one lineage.

    Attributes:
        parts: by id.
        constant: whether no argument lies behind a part's value.
        pure: whether no weight does, either.
        iteration: that loops over elements are in: one that is another when it is counted from the end.
    """

    def __init__(self, lineage: LineageData) -> None:
        self.parts = lineage.parts
        self.constant = SourceSystem(self.parts, lineage.results).constant
        self.pure: dict[int, bool] = {}
        for index in sorted(self.parts):
            part = self.parts[index]
            weightless = all(kind != "w" for kind, _ in arguments.operands(part.args))
            self.pure[index] = self.constant[index] and weightless and all(self.pure[i] for i in part.inputs)
        self._held = lineage.bodies.weights
        self._types: dict[Operand, str] = {}
        self._sizes = Sizes((kind for kinds in self._kinds() for kind in kinds), self._together())
        self._measured = dict(self._measures())
        self.iteration = self._middle()
        self._ascending = {
            operands[2]
            for part in self.parts.values()
            if _BAGS in part.op and len(operands := arguments.operands(part.args)) > 2
        }
        self._shapes: dict[Hashable, Any] = {}
        self._bijections: dict[int, Order | None] = {}
        self._bases: dict[Operand, tuple[Operand, Order | None]] = {}
        self._resources: dict[str, set[Operand]] = {}
        self._users: dict[int, list[int]] = {}
        self._elements: dict[int, list[int]] = {}
        """Of parts with several results, the parts that are one of them."""
        for part in self.parts.values():
            for operand, type_ in arguments.operand_types(part.args, asked=True).items():
                self._types.setdefault(operand, type_)
            for kind, name in arguments.operand_types(part.args):
                if kind == "w":
                    self._resources.setdefault(resource_name(str(name)), set()).add((kind, name))
            if self.constant[part.id]:
                self._resources.setdefault(resource_name(part.name), set()).add(("p", part.id))
            for read in part.inputs:
                self._users.setdefault(read, []).append(part.id)
            if part.op == "operator.getitem":
                self._elements.setdefault(part.inputs[0], []).append(part.id)

    def _middle(self) -> int:
        counts: set[int] = set()
        for part in self.parts.values():
            if part.op in (ELEMENT, STACKED):
                kinds = arguments.operand_types(part.args).values() if part.op == ELEMENT else part.types
                counts.update(self._sizes.of(kind)[0] for kind in kinds)
            if part.op == ELEMENT:
                counts.update(self._sizes.of(self.parts[read].types[0])[0] for read in part.inputs)
        return next((n for n in range(1, min(counts, default=0)) if 2 * n + 1 not in counts), 0)

    def _measures(self) -> Iterator[tuple[str, tuple[int, int, Measure]]]:
        """Of numbers that are read from tensors and decide sizes, a part, and which of its sizes one decides: the first
        of those whose size is the number itself, else of others."""
        measures: list[tuple[bool, int, int, Measure]] = []
        for index, part in self.parts.items():
            for dim, size in enumerate(dimensions_of(part.types[0]) if len(part.types) == 1 else ()):
                if (told := measure(size)) is not None and told.name not in read_numbers(part.args):
                    measures.append((size == told.name, -index, dim, told))
        for _, index, dim, told in sorted(measures, key=lambda one: one[:3]):
            yield told.name, (-index, dim, told)

    def _kinds(self) -> Iterator[Iterable[str]]:
        for part in self.parts.values():
            yield part.types
            yield arguments.operand_types(part.args, asked=True).values()

    def _together(self) -> Iterator[list[str]]:
        """Types of what operators take element by element, of those with sizes that are known at run time only."""
        for part in self.parts.values():
            if any(map(has_symbols, part.types)) and is_pointwise(part.op):
                read = [self.parts[number].types[0] for number in part.inputs if self.parts[number].types]
                yield [*read, *arguments.operand_types(part.args).values(), *part.types[:1]]

    def drawn(
        self,
        trial: Trial,
        seed: int,
        integers: range = range(2),
        undrawn: tuple[SourceValues, Set[Operand]] | None = None,
        *,
        rounded: bool = False,
    ) -> SourceValues:
        """Its values, with nothing drawn yet.

        Args:
            rounded: those that are computed of known numbers alone are rounded where they are of half precision.
        """
        known = (self.known.parts, self.known.of) if rounded else None
        return self._values(trial, seed, integers, undrawn, rounded, known)

    def _values(
        self,
        trial: Trial,
        seed: int,
        integers: range = range(2),
        undrawn: tuple[SourceValues, Set[Operand]] | None = None,
        rounded: bool = False,
        known: tuple[Set[int], Callable[[int], Array]] | None = None,
    ) -> SourceValues:
        source = self.parts, self._types, self._sizes, self._held
        values = SourceValues(
            *source, trial, seed, integers, self._shapes, self.iteration, self._ascending, undrawn, rounded, known
        )
        values.measured = self._measured
        return values

    def following(self, operands: Iterable[Operand]) -> frozenset[Operand]:
        """Values that are computed of some, and those."""
        twin = self.drawn("normal", 0).twin
        stack, seen = [twin(operand) for operand in operands], set[Operand]()
        while stack:
            current = stack.pop()
            if current not in seen:
                seen.add(current)
                stack += self._readers.get(current, ())
        return frozenset(seen)

    @cached_property
    def _readers(self) -> dict[Operand, list[Operand]]:
        twin = self.drawn("normal", 0).twin
        readers: dict[Operand, list[Operand]] = {}
        for part in self.parts.values():
            for operand in self._read(part):
                readers.setdefault(twin(operand), []).extend((("p", part.id), ("p", part.twin)))
        return readers

    def _read(self, part: Part) -> list[Operand]:
        """The operands of a part, and those whose sizes tell the numbers in types of what it reads no more of."""
        measured = (self._measured[name][0] for name in read_numbers(part.args) if name in self._measured)
        return [*arguments.operands(part.args), *(("p", index) for index in measured)]

    @cached_property
    def known(self) -> KnownValues:
        """What is computed of known numbers alone, as half precision has it."""
        return KnownValues(self.parts, self.constant, self._held, self._values("normal", 0, rounded=True))

    @cached_property
    def rounds(self) -> bool:
        """Whether there are known numbers of half precision, or operators that round some."""
        return bool(self.known.parts) or any(part.op in ROUNDING for part in self.parts.values())

    @cached_property
    def impure(self) -> frozenset[Operand]:
        """Values that are, or are computed of, arguments, weights, what loops carry, or sizes that these decide."""
        parts: set[int] = set()
        for index in sorted(self.parts):
            part = self.parts[index]
            if not self.pure[index] or read_numbers(part.args) or not parts.isdisjoint(part.inputs):
                parts.add(index)
        return frozenset([*self._types, *(("p", index) for index in parts)])

    def type_of(self, operand: Operand) -> str:
        """The type of an operand's first value.

        Raises:
            UnevaluatedError: it is no operand of the source.
        """
        kind, name = operand
        if kind == "p":
            return self.parts[int(name)].types[0]
        if operand not in self._types:
            raise UnevaluatedError(f"nothing is known of {'argument' if kind == 'a' else 'weight'} {name}")
        return self._types[operand]

    def held(self, operand: Operand) -> str:
        """What is known of the elements of a weight, as text."""
        return repr(self._held.get(str(operand[1]))) if operand[0] == "w" else ""

    def weight(self, name: str) -> Operand | None:
        """The weight, or constant part, that a program calls so, if there is one and no other."""
        if ("w", name) in self._types:
            return ("w", name)
        known = self._resources.get(name, set())
        return next(iter(known)) if len(known) == 1 else None

    def alike(self, said: Iterable[int]) -> Iterator[Operand]:
        """Values that a result may be: parts, what they are views of, what holds their elements in another order, and
        pieces of them, if no more is read."""
        seen: set[int] = set()
        for part in said:
            while part not in seen:
                seen.add(part)
                yield from (("p", one) for one in self._elements.get(part, (part,)))
                operands = [name for kind, name in arguments.operands(self.parts[part].args) if kind == "p"]
                if not self.parts[part].view or len(operands) != 1:
                    break
                part = int(operands[0])
        # What holds the same elements in another order; dimensions may have been split for that.
        stack = sorted(seen, reverse=True)
        while stack and len(seen) < _VIEWS:
            for user in self._users.get(stack.pop(), ()):
                if user not in seen and self.bijection(user) is not None:
                    seen.add(user)
                    stack.append(user)
                    yield ("p", user)
        stack = sorted(seen, reverse=True)
        while stack and len(seen) < _VIEWS:
            for user in self._users.get(stack.pop(), ()):
                if user not in seen and self.parts[user].view and len(self.parts[user].inputs) == 1:
                    seen.add(user)
                    stack.append(user)
                    if self.parts[user].op != "operator.getitem":
                        yield ("p", user)

    def determined(self, operands: Iterable[Operand], given: Iterable[Operand]) -> bool:
        """Whether some values are computed of some others, and of weights."""
        twin = self.drawn("normal", 0).twin
        seen = set(map(twin, given))
        stack = [twin(operand) for operand in operands]
        while stack:
            operand = stack.pop()
            if operand in seen:
                continue
            seen.add(operand)
            if operand[0] == "a" or (operand[0] == "p" and self.parts[int(operand[1])].op in JOINS):
                return False
            if operand[0] == "p":
                stack += map(twin, self._read(self.parts[int(operand[1])]))
        return True

    def folds(self, operand: Operand, given: Container[Operand]) -> bool:
        """Whether a value is computed with numbers that were computed of numbers alone or read from tensors, which may
        have been rounded.

        Args:
            given: values that are drawn.
        """
        twin = self.drawn("normal", 0).twin
        stack, seen = [twin(operand)], set[Operand]()
        while stack:
            current = stack.pop()
            if current in seen or current in given or current[0] != "p":
                continue
            seen.add(current)
            part = self.parts[int(current[1])]
            pure = self.pure[part.id] and part.inputs and part.types[:1] and part.types[0].startswith(("f", "bf"))
            read = part.op == "aten._local_scalar_dense.default"  # rounded to the type of what it is used with
            if (
                read or pure or (is_pointwise(part.op) and arguments.numbers(part.args) > 1)
            ):  # as of `add(x, 0.1, alpha=10)`
                return True
            stack += map(twin, arguments.operands(part.args))
        return False

    def based(self, operand: Operand, layout: Order | None) -> tuple[Operand, Order | None]:
        """The earliest value that has the same elements, and the positions in it: views of one value are one."""
        if operand not in self._bases:
            self._bases[operand] = self._based(operand)
        base, order = self._bases[operand]
        if order is None:
            order = layout
        elif layout is not None:
            order = layout.through(order)
        return base, None if order is None or (order.plain and self._is_whole(base, order)) else order

    def _based(self, operand: Operand) -> tuple[Operand, Order | None]:
        layout: Order | None = None
        while operand[0] == "p":
            part = self.parts[int(operand[1])]
            order = self.bijection(part.id)
            if order is None:
                break
            (operand,) = dict.fromkeys(arguments.operands(part.args))
            layout = order if layout is None else layout.through(order)
        return operand, layout

    def _is_whole(self, operand: Operand, layout: Order) -> bool:
        """Whether an order is of all elements of a value, and not of the first ones only, as far as sizes are known."""
        with suppress(UnevaluatedError):
            kind = self.type_of(operand)
            return has_read_numbers(kind) or layout.size == prod(self._sizes.of(kind))
        return True

    def bijection(self, index: int) -> Order | None:
        """Of a part that gives the elements of its only operand in another order: that order; else None."""
        if index not in self._bijections:
            with exactly(exact=False):
                self._bijections[index] = self._ordered(self.parts[index])
        return self._bijections[index]

    def _ordered(self, part: Part) -> Order | None:
        """Found out by running it on numbers that tell their positions. That says what it does with all others of those
        operators only that move elements, and of sums and products with a number."""
        operands = list(dict.fromkeys(arguments.operands(part.args)))
        if len(operands) != 1 or len(part.types) != 1 or not (part.op in _MOVING or is_view(part.op)):
            return None
        (operand,) = operands
        if operand[0] == "p" and len(self.parts[int(operand[1])].types) != 1:
            return None
        source = self.drawn("normal", 0)
        try:
            sizes = self._sizes.of(self.type_of(operand))
            count = prod(sizes)
            numbers = Direct(sizes, np.dtype(np.float64), lambda flat: -1.25 - flat)
            source.values[source.twin(operand)] = numbers
            after = source.tensor(("p", part.id))
            some = spread(after.size, _TOLD)
            numbered = after.at(some)
        except UnevaluatedError:
            return None
        if after.size != count or after.dtype.kind != "f":
            return None
        places = (-1.25 - numbered).astype(np.int64)
        inside = (places >= 0) & (places < count)
        if not inside.all() or (-1.25 - places != numbered).any() or np.unique(places).size != some.size:
            return None
        order = Order(count, lambda flat: (-1.25 - after.at(flat)).astype(np.int64))
        # Of sizes that each draw decides, only what is in place stays where it is.
        return order if order.plain or not has_read_numbers(self.type_of(operand)) else None
