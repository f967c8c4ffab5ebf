"""What is computed ahead of time of a program's weights, as globals of IREE's module.

IREE hoists what is computed from weights alone only where it grows little. So each prepared value is a global from the
start. Where it reads constants it is computed here, and the global holds it; where it reads parameters an initializer
computes it when the program is loaded (`fred-raise` calls no parameter a weight, for it would be in memory twice;
pipelines of one's own may).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.prov_locations import PREPARED
from covan_mlir.fred.scalars import Array
from covan_mlir.lowering.kernels import evaluation
from covan_mlir.lowering.kernels.kernel import Operand, Preparation

log = logging.getLogger(__name__)

_LOAD = "util.global.load"
_PURE = ("arith.", "linalg.", "math.", "tensor.")
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


class _VariesError(Exception):
    """A value is not the same at every call, as far as can be seen; the message says what it comes from."""


@dataclass
class Preparer:
    """Prepares values of a module of IREE's, in whose context the caller is; equal ones once.

    Before::

        %r = call @kernel(%x, %w) : (tensor<3x8xf32>, tensor<32x8xf32>) -> tensor<3x32xf32>

    After, if ``%w`` is read from a parameter; if it is constant, the global has a value and no initializer::

        util.global private @prepared_5f0c1d2e3a4b5968.0 : tensor<2x8x16xf32>
        util.initializer {
          %w = util.global.load @weight.0 : tensor<32x8xf32>
          %p = linalg.pack %w ... : tensor<32x8xf32> -> tensor<2x8x16xf32>
          util.global.store %p, @prepared_5f0c1d2e3a4b5968.0 : tensor<2x8x16xf32>
          util.return
        }
        ...
        %p = util.global.load @prepared_5f0c1d2e3a4b5968.0 : tensor<2x8x16xf32>
        %r = flow.dispatch @kernel::@kernel(%x, %p) : (tensor<3x8xf32>, tensor<2x8x16xf32>) -> tensor<3x32xf32>

    Attributes:
        globals: symbols of what was prepared, by what it is and what of.
        calls: of functions of the module, by name; none where there are several.
    """

    module: Any
    globals: dict[Hashable, str] = field(default_factory=dict)
    calls: dict[str, Any] = field(default_factory=dict)

    def value(self, preparation: Preparation, sources: Sequence[Any], call: Any) -> Any:
        """A prepared value, for the place before a call. One that varies after all is computed there, at each call.

        Args:
            sources: the values that it is computed from.
        """
        import iree.compiler.ir as ir

        try:
            content = (preparation.symbol, *(self._content(source) for source in sources))
        except _VariesError as error:
            log.warning("%s: prepared at every call, not once: %s", preparation.symbol, error)
            return self._computed(preparation, sources, ir.InsertionPoint(call))
        if content not in self.globals:
            self.globals[content] = self._global(preparation, sources)
        with ir.Location.unknown(), ir.InsertionPoint(call):
            symbol = ir.FlatSymbolRefAttr.get(self.globals[content])
            kind = ir.Type.parse(preparation.operand.tensor)
            return ir.Operation.create(_LOAD, [kind], attributes={"global": symbol}).result

    def reshaped(self, value: Any, call: Any) -> Any:
        """A constant that is reshaped, as a global for the place before a call: IREE would compile a program that
        copies it. All other values as they are."""
        import iree.compiler.ir as ir

        if getattr(value.owner, "name", "") not in _RESHAPES:
            return value
        try:
            self._value(value)
        except (_VariesError, evaluation.UnknownError):
            return value
        kind = ir.RankedTensorType(value.type)
        operand = Operand("constant", tuple(kind.shape), str(kind.element_type))
        text = f"func.func private @constant(%w: {kind}) -> {kind} {{\n  return %w : {kind}\n}}\n"
        return self.value(Preparation(operand, (operand.name,), text), [value], call)

    def _global(self, preparation: Preparation, sources: Sequence[Any]) -> str:
        """Adds a global with its value, or with the initializer that computes it. -> the symbol of the global"""
        import iree.compiler.ir as ir

        name, kind = f"{preparation.symbol}.{len(self.globals)}", preparation.operand.tensor
        value = self._evaluated(preparation, sources)
        if value is not None:
            stored = ir.Module.parse(f"util.global private @{name} : {kind}")
            (view,) = stored.body.operations
            view.operation.attributes["initial_value"] = ir.DenseResourceElementsAttr.get_from_buffer(
                value, name, ir.Type.parse(kind)
            )
            view.operation.detach_from_parent()
            ir.InsertionPoint.at_block_begin(self.module.body).insert(view.operation)
            return name
        owner = ir.Module.parse(
            f"util.global private @{name} : {kind}\nutil.initializer {{\n  util.return\n}}",
        )
        stored, initializer = (view.operation for view in owner.body.operations)
        for op in (stored, initializer):
            op.detach_from_parent()
        # IREE wants a global that holds a tensor to stand before those who load it.
        ir.InsertionPoint.at_block_begin(self.module.body).insert(stored)
        self.module.body.append(initializer)
        at = ir.InsertionPoint(list(initializer.regions[0].blocks[0])[-1].operation)
        copies: dict[Any, Any] = {}
        copied = [self._copied(source, copies, at) for source in sources]
        value = self._computed(preparation, copied, at)
        with at, ir.Location.unknown():
            attributes = {"global": ir.FlatSymbolRefAttr.get(name)}
            ir.Operation.create("util.global.store", [], [value], attributes=attributes)
        return name

    def _evaluated(self, preparation: Preparation, sources: Sequence[Any]) -> Array | None:
        """What is prepared; None: it is not known before the program is loaded, or cannot be computed here."""
        import iree.compiler.ir as ir

        owner = ir.Module.parse(preparation.text)
        (function,) = owner.body.operations
        try:
            return evaluation.call(function.operation, [self._value(source) for source in sources])
        except evaluation.UnknownError as error:
            log.info("%s: prepared when the program is loaded, or by the compiler: %s", preparation.symbol, error)
            return None

    def _value(self, value: Any) -> Array:
        """The value of what comes from constants.

        Raises:
            UnknownError: it does not.
        """
        op = self._source(value)
        return evaluation.result(op, {operand: self._value(operand) for operand in (*op.operands, *_captured(op))})

    def _computed(self, preparation: Preparation, sources: Sequence[Any], at: Any) -> Any:
        """The body of a preparation's function, of some values."""
        import iree.compiler.ir as ir

        with ir.Location.unknown():
            owner = ir.Module.parse(preparation.text)
            (function,) = owner.body.operations
            (block,) = function.operation.regions[0].blocks
            copies = dict(zip(block.arguments, sources, strict=True))
            *ops, returned = [view.operation for view in block]
            for op in ops:
                _locate(_copy(op, copies, at), ir.Location.name(PREPARED))  # no action computes it
            return copies[returned.operands[0]]

    def _source(self, value: Any) -> Any:
        """Where a value comes from in this module: the op that gives it.

        Raises:
            _VariesError: it is an argument of a function that others may call, or one op gives it that is not pure.
        """
        import iree.compiler.ir as ir

        while isinstance(value.owner, ir.Block):
            value = self._argument(value)
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if op.name != _LOAD and not op.name.startswith(_PURE):
            raise _VariesError(f"it comes from a {op.name}")
        return op

    def _argument(self, value: Any) -> Any:
        """What the only call of a private function gives for one of its arguments."""
        import iree.compiler.ir as ir

        function = value.owner.owner.operation
        if function.name != "func.func" or value.owner != function.regions[0].blocks[0]:
            raise _VariesError(f"it comes from an argument of a block of a {function.name}")
        name = function.attributes["sym_name"].value
        if name not in self.calls:
            self.calls[name] = self._only_call(name)
        if self.calls[name] is None:
            raise _VariesError(f"it is an argument of @{name}, which is not called from one place alone")
        return self.calls[name].operands[ir.BlockArgument(value).arg_number]

    def _only_call(self, name: str) -> Any:
        import iree.compiler.ir as ir

        calls: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
                calls.append(op)
            return ir.WalkResult.ADVANCE

        self.module.operation.walk(visit)
        return calls[0] if len(calls) == 1 else None

    def _content(self, value: Any) -> Hashable:
        """What tells a value from others, whatever op gives it.

        Raises:
            _VariesError: it may be another one at the next call.
        """
        op = self._source(value)
        operands = tuple(self._content(operand) for operand in (*op.operands, *_captured(op)))
        number = 0 if len(op.results) == 1 else list(op.results).index(value)
        return (number, _shape(op, {}), operands)

    def _copied(self, value: Any, copies: dict[Any, Any], at: Any) -> Any:
        """A copy of a value, and of all that it comes from, at another place.

        Args:
            copies: of what was copied there already.
        """
        op = self._source(value)
        number = 0 if len(op.results) == 1 else list(op.results).index(value)
        if op.results[number] not in copies:
            for operand in (*op.operands, *_captured(op)):
                copies[operand] = self._copied(operand, copies, at)
            _copy(op, copies, at)
        return copies[op.results[number]]


def _copy(op: Any, copies: dict[Any, Any], at: Any) -> Any:
    """A copy of an op at another place, which reads copies of what the op reads; adds those of its results."""
    import iree.compiler.ir as ir

    copy = op.clone(at)

    def visit(inner: Any) -> Any:
        for number, operand in enumerate(inner.operands):
            if operand in copies:
                inner.operands[number] = copies[operand]
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    copies.update(zip(op.results, copy.results, strict=True))
    return copy


def _shape(op: Any, numbers: dict[Any, int]) -> Hashable:
    """What an op does with its operands.

    Args:
        numbers: of values of the op's own.
    """
    attributes = tuple((name, op.attributes[name]) for name in sorted(op.attributes))
    inside: list[Hashable] = []
    for region in op.regions:
        for block in region:
            for argument in block.arguments:
                numbers[argument] = len(numbers)
            for view in block:
                inner = view.operation
                inside.append((_shape(inner, numbers), tuple(numbers.get(operand, -1) for operand in inner.operands)))
                for result in inner.results:
                    numbers[result] = len(numbers)
    return (op.name, attributes, tuple(str(result.type) for result in op.results), tuple(inside))


def _captured(op: Any) -> list[Any]:
    """Values from outside of an op that its regions read."""
    import iree.compiler.ir as ir

    if not len(op.regions):
        return []
    inside: set[Any] = set()
    read: list[Any] = []

    def visit(inner: Any) -> Any:
        inside.update(inner.results)
        for region in inner.regions:
            for block in region:
                inside.update(block.arguments)
        if inner != op:
            read.extend(inner.operands)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return [value for value in dict.fromkeys(read) if value not in inside]


def _locate(op: Any, location: Any) -> None:
    """Gives an op, and all that is nested in it, a location."""
    import iree.compiler.ir as ir

    def visit(inner: Any) -> Any:
        inner.location = location
        return ir.WalkResult.ADVANCE

    op.walk(visit)
