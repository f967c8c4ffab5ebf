"""A StableHLO module, operation by operation, on tensors of torch: what `torch.export` traces, and PyTorch runs.

Functions that are called are translated where they are called: what stands in them are operations of their own at each
place. What is known already (constants, and what is computed of few numbers) is computed during translation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.traceback import annotate
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.errors import ExportError
from covan_mlir.frontend.sources import NODE
from covan_mlir.frontend.stablehlo import operators, sizes
from covan_mlir.frontend.stablehlo.call import Call, known_tensor, uniform
from covan_mlir.frontend.stablehlo.nodes import MOST, Ledger, Path, Step
from covan_mlir.frontend.stablehlo.program import Operation, Region
from covan_mlir.frontend.stablehlo.reading import Loaded
from covan_mlir.frontend.stablehlo.registry import callee, key, lookup
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import LARGEST, Item, Value, computed

assert operators  # declares them

Scope = dict[int, Item]
DEPTH = 64
"""Functions and regions inside of each other, at most."""
_INNER = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
"""Operations whose regions are operations of the source, too; those of others are functions of numbers."""
HELD = 64
"""Elements from which on a constant is a weight of the program."""


@dataclass
class Evaluator:
    """Translates one module.

    Attributes:
        loaded: the module.
        ledger: its operations: met by a first run, and known in those that follow.
        held: the weight that holds a constant, by the constant's number.
        marks: whether calls are to carry places: while a program is traced.
    """

    loaded: Loaded
    ledger: Ledger
    held: Callable[[int], torch.Tensor]
    marks: bool = False
    _path: Path = ()
    _depth: int = 0
    _numeric: int = 0

    def main(self, items: Sequence[Item]) -> list[Item]:
        """The results of the module."""
        return self.function(self.loaded.module.main, items)

    def function(self, name: str, items: Sequence[Item]) -> list[Item]:
        """The results of one of its functions."""
        known = self.loaded.module.functions.get(name)
        if known is None:
            raise ExportError(f"the module calls {name!r}, which it does not have")
        return self.region(known.body, items, {})

    def region(self, region: Region, items: Sequence[Item], outer: Scope) -> list[Item]:
        """What a region returns, given what its arguments, and values outside of it, stand for."""
        self._depth += 1
        if self._depth > DEPTH:
            raise ExportError(f"functions and regions are nested more than {DEPTH} deep, or in a circle")
        try:
            scope = dict(outer) | dict(zip(region.arguments, items, strict=True))
            writers = {result: operation for operation in region.operations for result in operation.results}
            last = _last_reads(region)
            for index, operation in enumerate(region.operations):
                results = self.operation(operation, scope, writers)
                scope.update(zip(operation.results, results, strict=True))
                for value in last.get(index, ()):
                    scope.pop(value, None)
            return [scope[value] for value in region.returned]
        finally:
            self._depth -= 1

    def operation(self, operation: Operation, scope: Scope, writers: Mapping[int, Operation]) -> list[Item]:
        """The results of one operation."""
        if operation.name == "stablehlo.constant":
            return [self._constant(operation.attributes["value"])]
        name = key(operation)
        translation, function = lookup(name), callee(operation)
        if translation is None and function is not None:
            with self._stepped(Step(operation.id, operation.place)):
                return self.function(function, [scope[value] for value in operation.operands])
        place = None
        if not self._numeric:  # those inside of it come before
            own = self.ledger.lookup if operation.name in _INNER else self.ledger.place
            place = own(self._path, operation)
        with self._marked(place):
            if translation is None:
                raise Refused(f"{self._where(operation)}there is no translation of {name}")
            call = self._call(operation, scope, writers)
            try:
                results: list[Item]
                if (numbers := sizes.evaluated(call)) is not None:
                    results = [numbers]
                elif (folded := self._computed(call, translation)) is not None:
                    results = folded
                else:
                    results = _items(translation(call))
                if not self._numeric:
                    self._note(self.ledger.place(self._path, operation), call, results)
                return results
            except Refused as error:
                where = self._where(operation)
                raise (
                    error if str(error).startswith(where) else Refused(f"{where}{name}: {error}")
                ) from error.__cause__
            except (ExportError, KeyboardInterrupt):
                raise
            except Exception as error:
                if type(error).__module__.startswith(("torch._dynamo", "torch.fx.experimental")):
                    raise
                why = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
                raise Refused(f"{self._where(operation)}{name}: {why}") from error

    def _where(self, operation: Operation) -> str:
        """``net.py:12: ``, or nothing."""
        lines = self.loaded.module.places[operation.place].frames
        return f"{lines[0].file}:{lines[0].line}: " if lines else ""

    def _constant(self, number: int) -> Value:
        tensor = self.loaded.tensors[number]
        value = known_tensor(tensor)
        if tensor.numel() < HELD or uniform(value) is not None:
            return value
        return Value(tensor.dtype, lambda: self.held(number), known=tensor, held=True)

    def _note(self, place: int, call: Call, results: list[Item]) -> None:
        """What an operation reads, and whether it computes anything."""
        tensors = [item for item in results if isinstance(item, Value)]
        read = [item.places for item in call.items if isinstance(item, Value)]
        self.ledger.reads[place] = frozenset[int]().union(*read)
        if call.operation.name in _INNER and all(item.places or item.is_known for item in tensors):
            self.ledger.known.add(place)  # a loop that is written out, a branch that is taken
        elif tensors and all(item.is_known for item in tensors):
            constants = all(item.known is not None for item in tensors)
            (self.ledger.known if constants else self.ledger.sizes).add(place)
        elif len(tensors) == 1 and any(tensors[0] is operand for operand in call.items):
            self.ledger.given_back[place] = tensors[0].places
        else:
            for item in tensors:
                item.places = item.places or frozenset([place])

    def _marked(self, place: int | None) -> AbstractContextManager[Any]:
        return annotate({NODE: place}) if self.marks and place is not None else nullcontext()

    @contextmanager
    def _stepped(self, step: Step) -> Iterator[None]:
        path = self._path
        self._path = (*path, step)
        try:
            yield
        finally:
            self._path = path

    @contextmanager
    def _of_numbers(self, region: bool) -> Iterator[None]:
        self._numeric += region
        try:
            yield
        finally:
            self._numeric -= region

    def _call(self, operation: Operation, scope: Scope, writers: Mapping[int, Operation]) -> Call:
        def run(region: Region, given: Sequence[Item], bound: Mapping[int, Item] | None = None) -> list[Item]:
            # Whether a loop goes on is the loop's own work.
            asks = operation.name == "stablehlo.while" and region is operation.regions[0]
            with self._of_numbers(asks or operation.name not in _INNER):
                return self.region(region, given, scope | dict(bound or {}))

        def turned(region: Region, given: Sequence[Item], turn: int) -> list[Item]:
            with self._stepped(Step(operation.id, operation.place, turn)):
                return run(region, given)

        def captured(region: Region) -> dict[int, Value]:
            return {
                value: item
                for value in free_values(region)
                if isinstance(item := scope.get(value), Value) and (item.held or not item.is_known)
            }

        def rebound(bound: Mapping[int, Item]) -> Callable[[Region, Sequence[Item]], list[Item]]:
            return lambda region, given: run(region, given, bound)

        return Call(
            operation,
            [scope[value] for value in operation.operands],
            run,
            turned,
            captured,
            rebound,
            self._constant,
            lambda value: uniform(item) if isinstance(item := scope.get(value), Value) else None,
            lambda index: writers.get(operation.operands[index]),
            lambda region: weight(self.loaded, region),
            not self.marks,
        )

    def _computed(self, call: Call, translation: Callable[[Call], Any]) -> list[Item] | None:
        """The results of an operation of which all operands are known, if they are small."""
        if call.operation.name in _INNER or not all(
            isinstance(item, Value) and item.known is not None and item.size <= LARGEST for item in call.items
        ):
            return None
        if sum(math.prod(size or 0 for size in kind.shape) for kind in call.operation.types) > LARGEST:
            return None
        real = [_real(item) for item in call.items if isinstance(item, Value)]
        with _disable_current_modes():
            results = _items(translation(replace(call, items=real)))
            return [known_tensor(item.tensor.detach()) for item in results if isinstance(item, Value)]


def weight(loaded: Loaded, region: Region) -> int:
    """How many operations a region has, those of functions that it calls included; no more than `MOST` are counted."""
    total = 0
    regions = [region]
    while regions and total < MOST:
        for operation in regions.pop().operations:
            total += 1
            regions += operation.regions
            function = loaded.module.functions.get(callee(operation) or "")
            regions += [function.body] if function is not None else []
    return total


def free_values(region: Region) -> set[int]:
    """Numbers of values that a region reads from outside."""
    own = set(region.arguments)
    free: set[int] = set()
    for operation in region.operations:
        read = set(operation.operands)
        for inner in operation.regions:
            read |= free_values(inner)
        free |= read - own
        own |= set(operation.results)
    return free | (set(region.returned) - own)


def _items(result: Any) -> list[Item]:
    results = result if isinstance(result, tuple | list) else (result,)
    return [computed(item) if isinstance(item, torch.Tensor) else item for item in results]


def _real(item: Value) -> Value:
    known = item.known
    assert known is not None
    return Value(item.dtype, lambda: known, known=known)


def _last_reads(region: Region) -> dict[int, list[int]]:
    """Values that no later operation of a region reads, by the operation: what they stand for is given up."""
    seen = set(region.returned)
    last: dict[int, list[int]] = {}
    for index in reversed(range(len(region.operations))):
        operation = region.operations[index]
        read = set(operation.operands)
        for inner in operation.regions:
            read |= free_values(inner)
        last[index] = [value for value in read | set(operation.results) if value not in seen]
        seen |= read | set(operation.results)
    return last
