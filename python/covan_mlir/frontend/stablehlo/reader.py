"""The process that reads StableHLO, by the bindings that JAX brings: a crash of theirs is not its caller's.

``python -m covan_mlir.frontend.stablehlo.reader PARENT``: a module comes in as the blob of a frame that names it,
`program.Module` goes out with its constants as blobs. Text, bytecode and StableHLO's portable artifacts are read.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from covan_mlir.frontend.stablehlo.program import (
    Failed,
    Frame,
    Function,
    Module,
    Operation,
    Place,
    Region,
    Tensor,
    Type,
)
from covan_mlir.support.processes import frames, parent

_TERMINATORS = ("stablehlo.return", "func.return", "chlo.return")
_TEXT = "-"
"""The name of the file of operations that say nothing of where they come from: the module itself."""
_SKIPPED = frozenset(("result_accuracy", "mhlo.sharding", "sdy.sharding", "sdy.sharding_rule", "precision_config"))
"""Attributes that no translation asks for."""
_NUMPY: dict[str, Any] = {
    **{f"f{width}": np.dtype(f"float{width}") for width in (16, 32, 64)},
    **{f"i{width}": np.dtype(f"int{width}") for width in (8, 16, 32, 64)},
    **{f"ui{width}": np.dtype(f"uint{width}") for width in (8, 16, 32, 64)},
    "i1": np.dtype(bool),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
"""numpy's element types, by MLIR's names."""
_DENSE = re.compile(r"dense<(.*)>\s*:\s*tensor<[^<>]*(?:<[^<>]*>)?>", re.DOTALL)


class _Reading:
    """One module on its way to plain data."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blobs: list[bytes] = []
        self.tensors: list[Tensor] = []
        self.places: dict[Place, int] = {}
        self._values: dict[Any, int] = {}
        self._count = 0
        self._numbered = 0

    def module(self, module: ir.Module) -> Module:
        functions: dict[str, Function] = {}
        public = []
        for op in module.body.operations:
            operation = op.operation
            if operation.name != "func.func":
                continue  # meshes, and what else does not compute
            name = ir.StringAttr(operation.attributes["sym_name"]).value
            if not operation.regions[0].blocks:
                raise ValueError(f"the function {name} has no body")
            functions[name] = self._function(operation)
            private = "sym_visibility" in operation.attributes and (
                ir.StringAttr(operation.attributes["sym_visibility"]).value != "public"
            )
            if not private:
                public.append(name)
        main = "main" if "main" in public else public[0] if len(public) == 1 else ""
        if not main:
            raise ValueError(
                f"which function is the model? It has {', '.join(public) or 'no public one'}; call it main"
            )
        return Module(main, functions, tuple(self.tensors), tuple(self.places))

    def _function(self, operation: ir.Operation) -> Function:
        block = operation.regions[0].blocks[0]
        names = tuple(self._place(argument.location).path for argument in block.arguments)
        results: tuple[str, ...] = ()
        if "res_attrs" in operation.attributes:
            told = [ir.DictAttr(each) for each in ir.ArrayAttr(operation.attributes["res_attrs"])]
            results = tuple(ir.StringAttr(d["jax.result_info"]).value if "jax.result_info" in d else "" for d in told)
        return Function(self._region(operation.regions[0]), names, results)

    def _region(self, region: ir.Region) -> Region:
        if len(region.blocks) != 1:
            raise ValueError("control flow between blocks is no StableHLO")
        block = region.blocks[0]
        arguments = tuple(self._new(argument) for argument in block.arguments)
        types = tuple(_type(argument.type) for argument in block.arguments)
        operations: list[Operation] = []
        returned: tuple[int, ...] = ()
        for op in block.operations:
            operation = op.operation
            if operation.name in _TERMINATORS:
                returned = tuple(self._values[value] for value in operation.operands)
            else:
                operations.append(self._operation(operation))
        return Region(arguments, types, tuple(operations), returned)

    def _operation(self, operation: ir.Operation) -> Operation:
        operands = tuple(self._values[value] for value in operation.operands)
        regions = tuple(self._region(region) for region in operation.regions)
        results = tuple(self._new(result) for result in operation.results)
        self._count += 1
        return Operation(
            id=self._count,
            name=operation.name,
            operands=operands,
            results=results,
            types=tuple(_type(result.type) for result in operation.results),
            attributes=self._attributes(operation),
            regions=regions,
            place=self.places.setdefault(self._place(operation.location), len(self.places)),
        )

    def _new(self, value: Any) -> int:
        self._numbered += 1
        self._values[value] = self._numbered
        return self._numbered

    def _attributes(self, operation: ir.Operation) -> dict[str, Any]:
        if operation.name == "stablehlo.constant":
            return {"value": self._constant(operation)}
        read: dict[str, Any] = {}
        for name in operation.attributes:
            if name not in _SKIPPED:
                read[name] = self._plain(operation.attributes[name])
        return read

    def _constant(self, operation: ir.Operation) -> int:
        kind = _type(operation.results[0].type)
        try:
            value = operation.attributes["value"]
            array = np.array(value)
            splat = ir.DenseElementsAttr(value).is_splat
        except (TypeError, ValueError, RuntimeError):  # complex numbers and bfloat16
            array, splat = _written(operation.get_asm(large_elements_limit=None), kind)
        if splat and array.size:
            array = array.reshape(-1)[:1]
        return self._held(kind, array, splat)

    def _held(self, kind: Type, array: np.ndarray[Any, Any], splat: bool) -> int:
        self.tensors.append(Tensor(kind, len(self.blobs), splat))
        self.blobs.append(np.ascontiguousarray(array).tobytes())
        return len(self.tensors) - 1

    def _place(self, location: ir.Location) -> Place:
        """The outermost name, and the lines, each with the function that it is in."""
        path = ""
        lines: list[Frame] = []

        def walk(at: ir.Location, named: str, outermost: bool) -> None:
            nonlocal path
            if isinstance(at, ir.NameLoc):
                if outermost and not path:
                    path = at.name_str
                    walk(at.child_loc, "", False)
                else:
                    walk(at.child_loc, at.name_str, False)
            elif isinstance(at, ir.CallSiteLoc):
                walk(at.callee, named, outermost)
                walk(at.caller, "", False)
            elif isinstance(at, ir.FusedLoc):
                for inner in list(at.locations)[:1]:
                    walk(inner, named, outermost)
            elif isinstance(at, ir.FileLineColLoc):
                lines.append(
                    Frame(self.name if at.filename == _TEXT else at.filename, at.start_line, named or "<module>")
                )

        walk(location, "", True)
        return Place(path, tuple(lines))

    def _plain(self, attribute: ir.Attribute) -> Any:
        for kind, read in _SIMPLE:
            if isinstance(attribute, kind):
                return read(attribute)
        if isinstance(attribute, ir.ArrayAttr):
            return [self._plain(inner) for inner in attribute]
        if isinstance(attribute, ir.DictAttr):
            entries = [attribute[index] for index in range(len(attribute))]
            return {entry.name: self._plain(entry.attr) for entry in entries}
        for kind, fields in _NUMBERS:
            if kind.isinstance(attribute):
                known = kind(attribute)
                return {name: _number(getattr(known, name)) for name in fields}
        for kind in _WORDS:
            if kind.isinstance(attribute):
                return kind(attribute).value
        return str(attribute)


def _number(value: Any) -> Any:
    return value if isinstance(value, int) else list(value)


_SIMPLE: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (ir.BoolAttr, lambda a: bool(a.value)),
    (ir.IntegerAttr, lambda a: int(a.value)),
    (ir.FloatAttr, lambda a: float(a.value)),
    (ir.StringAttr, lambda a: str(a.value)),
    (ir.FlatSymbolRefAttr, lambda a: str(a.value)),
    (ir.TypeAttr, lambda a: str(a.value)),
    (ir.DenseI64ArrayAttr, list),
    (ir.DenseBoolArrayAttr, list),
    (ir.DenseI32ArrayAttr, list),
    (ir.DenseIntElementsAttr, lambda a: np.array(a).tolist()),
)
_NUMBERS: tuple[tuple[Any, tuple[str, ...]], ...] = tuple(
    (kind, tuple(name for name in vars(kind) if not name.startswith("_") and name not in ("get", "isinstance")))
    for kind in (
        stablehlo.DotDimensionNumbers,
        stablehlo.ConvDimensionNumbers,
        stablehlo.GatherDimensionNumbers,
        stablehlo.ScatterDimensionNumbers,
    )
)
_WORDS: tuple[Any, ...] = (
    stablehlo.ComparisonDirectionAttr,
    stablehlo.ComparisonTypeAttr,
    stablehlo.FftTypeAttr,
    stablehlo.TransposeAttr,
    stablehlo.RngAlgorithmAttr,
    stablehlo.RngDistributionAttr,
    chlo.ComparisonDirectionAttr,
    chlo.ComparisonTypeAttr,
)


def _type(kind: ir.Type) -> Type:
    if isinstance(kind, ir.RankedTensorType):
        sizes = tuple(None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank))
        return Type(str(kind.element_type), sizes)
    if isinstance(kind, ir.ShapedType):
        raise ValueError(f"a value is of the type {kind}")
    return Type("token" if "token" in str(kind) else str(kind))


def _written(text: str, kind: Type) -> tuple[np.ndarray[Any, Any], bool]:
    """Elements as MLIR writes them: all of them as bytes, one for all, or each; -> (array, whether one is for all).

    Raises:
        ValueError: their type is none that programs have.
    """
    dtype = _NUMPY.get(kind.dtype)
    written = _DENSE.search(text)
    if dtype is None or written is None:
        raise ValueError(f"a constant is of the type {kind}")
    body = written[1].strip()
    size = int(np.prod([extent or 0 for extent in kind.shape], dtype=np.int64))
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:].rstrip('"')), dtype), False
    wanted: Any = np.uint16 if kind.dtype == "bf16" else dtype
    numbers: list[Any] = []
    for token in re.findall(r"\([^()]*\)|[^\s,\[\]()]+", body):
        if token.startswith("("):
            real, imaginary = (_real(part, kind.dtype) for part in token[1:-1].split(","))
            numbers.append(complex(real, imaginary))
        elif token.startswith("0x") and kind.dtype == "bf16":
            numbers.append(int(token, 16))
        else:
            value = np.array(_real(token, kind.dtype), dtype)
            numbers.append(int(value.view(np.uint16)) if kind.dtype == "bf16" else value)
    array = np.array(numbers, wanted).view(dtype)
    return array, not body.startswith("[") and size != 1


def _real(text: str, dtype: str) -> float:
    text = text.strip()
    if text.startswith("0x"):  # what is infinite, or no number
        bits = int(text, 16)
        wide = "f64" in dtype
        return float(np.array(bits, np.uint64 if wide else np.uint32).view(np.float64 if wide else np.float32))
    return float(ast.literal_eval(text))


def context() -> ir.Context:
    """One that knows the dialects of StableHLO, and those beside it."""
    own = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    own.append_dialect_registry(registry)
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(own)
    mhlo.register_mhlo_dialect(own)
    own.load_all_available_dialects()
    return own


def parsed(own: ir.Context, data: bytes) -> ir.Module:
    """A module from text, bytecode, or a portable artifact.

    Raises:
        Exception: whatever the bindings raise for what is none.
    """
    if data.startswith(b"ML\xefR") and b"StableHLO_v" in data[:64]:
        return stablehlo.deserialize_portable_artifact(own, data)
    return ir.Module.parse(data if data.startswith(b"ML\xefR") else data.decode("utf-8"))


def element_type(dtype: str) -> Any:
    """numpy's type of elements, by MLIR's name of it.

    Raises:
        KeyError: it has none.
    """
    return _NUMPY[dtype]


def read(name: str, data: bytes) -> tuple[Module | Failed, list[bytes]]:
    """-> (the module of that name, or why it is none; the elements of its constants)."""
    reading = _Reading(name)
    with context() as own:
        try:
            return reading.module(parsed(own, data)), reading.blobs
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return Failed("; ".join(lines[:2]) or type(error).__name__), []


def main() -> None:
    """Answer one frame."""
    parent.watch(int(sys.argv[1]))
    name, (data,) = frames.receive(sys.stdin.buffer, msgspec.json.Decoder(type=str))
    answer, blobs = read(name, data)
    frames.send(sys.stdout.buffer, answer, blobs)


if __name__ == "__main__":
    main()
