"""A program against the signature that stands beside it: memory is read by what the two say, and a file may lie.

Once, when the program is loaded, what it declares of itself is compared with the signature; with every call, what it
returned, before a byte of it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import iree.runtime as rt

from covan_mlir.artifacts.schema import ITEM_SIZES
from covan_mlir.artifacts.signature import Dim, Leaf, Signature
from covan_mlir.errors import CovanError
from covan_mlir.runtime import values
from covan_mlir.support.typed_json import short


class ContractError(CovanError):
    """A program and its signature, or what stands beside them, contradict each other."""


@dataclass(frozen=True)
class TensorType:
    """Of a parameter or a result.

    Attributes:
        dtype: as torch spells it.
        shape: sizes; texts are open.
    """

    dtype: str
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return Leaf("tensor", self.dtype, self.shape).type_string()


Slot = TensorType | str
"""A tensor, or a number: ``int``, ``float`` or ``bool``."""


def passed(dtype: str, shape: tuple[Dim, ...]) -> TensorType:
    """The tensor that a program takes or gives for one: of a complex one the pairs."""
    return TensorType(values.PAIRS[dtype], (*shape, 2)) if dtype in values.PAIRS else TensorType(dtype, shape)


def slot(leaf: Leaf) -> Slot:
    """What the program takes or gives for a leaf that is no constant."""
    return passed(leaf.dtype, leaf.shape) if leaf.kind == "tensor" else leaf.dtype


def parameters(signature: Signature, bound: Sequence[TensorType]) -> list[tuple[str, Slot]]:
    """What a program of this signature takes, with names; ``bound`` are weights that it takes as arguments."""
    taken = [(f"argument {leaf.name}", slot(leaf)) for leaf in signature.inputs if leaf.kind != "constant"]
    taken += [(f"state {state.name}", passed(state.dtype, state.shape)) for state in signature.states]
    return taken + [(f"weight {index}", weight) for index, weight in enumerate(bound)]


def results(signature: Signature) -> list[tuple[str, Slot]]:
    """What it gives, with names."""
    given: list[tuple[str, Slot]] = []
    for kind, index in signature.results:
        match kind:
            case "state":
                state = signature.states[index]
                given.append((f"state {state.name}", passed(state.dtype, state.shape)))
            case "input":
                given.append((f"argument {signature.inputs[index].name}", slot(signature.inputs[index])))
            case "output":
                given.append((f"output {index}", slot(signature.outputs[index])))
            case "tap":
                given.append((f"leaf {index} of the taps", slot(signature.tap_leaves[index])))
            case "faults":
                given.append((f"check {index}", TensorType("bool", ())))
    return given


# --- at load ---------------------------------------------------------------------------------------------------------

_DECLARATION = "iree.abi.declaration"
_TYPE = re.compile(r"%[\w$.-]+: (?:tensor<(?P<sizes>(?:(?:\d{1,19}|\?)x)*)(?P<element>\w+)>|(?P<number>\w+))")
_ELEMENTS = {
    f"{kind}{bits}": f"{'u' * (kind == 'ui')}int{bits}" for kind in ("si", "ui", "i") for bits in (8, 16, 32, 64)
}
_ELEMENTS |= {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool"}
_CONVENTION = {"r": "reference", "I": "i64", "i": "i32", "F": "f64", "f": "f32"}
_NUMBERS = {"int": ("i64", "i32", "index"), "float": ("f64", "f32"), "bool": ("i1", "i8", "i32", "i64")}


def check_program(function: Any, signature: Signature, bound: Sequence[TensorType]) -> None:
    """See that a program's function takes and gives what the signature says.

    Raises:
        ContractError: it does not; says where.
    """
    for name, expected in (*parameters(signature, bound), *results(signature)):
        if isinstance(expected, TensorType) and not values.supported(expected.dtype):
            raise ContractError(f"{name} is {short(str(expected))}: such tensors cannot be passed")
    wanted = (("takes", parameters(signature, bound)), ("gives", results(signature)))
    declaration = function.reflection.get(_DECLARATION)
    if declaration is None:
        texts: list[list[Slot]] = _convention(function)
    else:
        texts = [[_declared(match) for match in _TYPE.finditer(text)] for text in declaration.partition(" -> ")[::2]]
    for (what, slots), declared in zip(wanted, texts, strict=True):
        if len(declared) != len(slots):
            raise ContractError(f"the program {what} {len(declared)} values, its signature says {len(slots)}")
        for (name, expected), actual in zip(slots, declared, strict=True):
            if not _agree(expected, actual):
                raise ContractError(f"{name} is {short(str(expected))}, but the program {what} {short(str(actual))}")


def _convention(function: Any) -> list[list[Slot]]:
    """What a function takes and gives by the calling convention of the VM, which says of tensors only that they are
    references. Programs of IREE's torch input have no other declaration; the bindings show it in texts alone."""
    text = repr(function).removeprefix(f"<VmFunction {function.name}")
    match = re.match(r"\(0(?P<takes>[a-zA-Z]*)(?:_(?P<gives>[a-zA-Z]*))?\), reflection = ", text)
    if match is None:
        raise ContractError("the program does not declare what it takes and gives")
    return [[_CONVENTION.get(letter, letter) for letter in (part or "") if letter != "v"] for part in match.groups()]


def _declared(match: re.Match[str]) -> Slot:
    if match["number"]:
        return match["number"]
    sizes = match["sizes"].split("x")[:-1]
    shape = tuple(size if size == "?" else int(size) for size in sizes)
    return TensorType(_ELEMENTS.get(match["element"], match["element"]), shape)


def _agree(expected: Slot, actual: Slot) -> bool:
    """Signs of integers are left out of declarations; where either size is open, the call decides."""
    if isinstance(actual, str):
        return actual in _NUMBERS[expected] if isinstance(expected, str) else actual == "reference"
    if isinstance(expected, str) or actual.dtype.removeprefix("u") != expected.dtype.removeprefix("u"):
        return False
    return len(actual.shape) == len(expected.shape) and all(
        isinstance(one, str) or isinstance(other, str) or one == other
        for one, other in zip(expected.shape, actual.shape, strict=True)
    )


def check_states(signature: Signature, held: Mapping[str, TensorType]) -> None:
    """See that the states that stand in a file are those of the signature.

    Raises:
        ContractError: one is missing, there is one more, or one is of another type.
    """
    wanted = {state.name: TensorType(state.dtype, state.shape) for state in signature.states}
    for name in sorted(wanted.keys() ^ held.keys()):
        raise ContractError(f"the state {short(name)} is not both in the signature and among the tensors")
    for name, expected in wanted.items():
        if held[name] != expected:
            raise ContractError(f"the state {short(name)} is {short(str(held[name]))}, the signature says {expected}")


# --- with every call -------------------------------------------------------------------------------------------------


def _element_types(dtype: str) -> frozenset[int]:
    """What a result of a dtype may say of itself: the compiler forgets the signs of integers."""
    name = dtype.removeprefix("u").upper()
    if dtype.removeprefix("u").startswith("int"):
        bits = name.removeprefix("INT")
        return frozenset(int(getattr(rt.HalElementType, f"{kind}_{bits}")) for kind in ("INT", "SINT", "UINT"))
    return frozenset({int(values.element_type(dtype))} if values.supported(dtype) else ())


class Results:
    """What the results of a call must be.

    Args:
        signature: of the program.
    """

    def __init__(self, signature: Signature) -> None:
        self._count = len(signature.results)
        self._tensors = [_Expected.of(name, kind) for name, kind in results(signature)]

    def count(self, out: Any) -> None:
        """Raises `ContractError` unless the program gave as many values as it is said to."""
        if len(out) != self._count:
            raise ContractError(f"the program gave {len(out)} values, its signature says {self._count}")

    def tensor(self, out: Any, index: int) -> Any:
        """The buffer view of a result.

        Raises:
            ContractError: it is none, or of another element type, rank, size or number of bytes.
        """
        expected = self._tensors[index]
        try:
            view = out.get_as_object(index, rt.HalBufferView)
        except (ValueError, IndexError, TypeError) as error:
            raise ContractError(f"{expected.name} is no tensor") from error
        shape = view.shape
        fits = shape == expected.shape if expected.known else expected.admits(shape)
        size = expected.byte_length if expected.known else math.prod(shape) * expected.item_size
        if (
            not fits
            or int(view.element_type) not in expected.elements
            or view.byte_length != size
            or view.get_buffer().byte_length() < size
        ):
            raise ContractError(
                f"{expected.name} is {short(expected.text)}, but the program gave the shape {short(list(shape))} "
                f"of elements 0x{int(view.element_type):08X}"
            )
        return view

    def number(self, out: Any, index: int) -> Any:
        """A result that is a number.

        Raises:
            ContractError: it is none.
        """
        try:
            value = out.get_variant(index)
        except (ValueError, IndexError, TypeError) as error:
            raise ContractError(f"{self._tensors[index].name} is no number") from error
        if type(value) not in (int, float):
            raise ContractError(f"{self._tensors[index].name} is no number")
        return value


@dataclass(frozen=True)
class _Expected:
    """What a result must be.

    Attributes:
        shape: its sizes, a list as the runtime's are; -1 where the program alone knows one.
        known: whether all of them are known, and with them how many bytes it has.
    """

    name: str
    text: str = ""
    elements: frozenset[int] = frozenset()
    item_size: int = 0
    shape: Sequence[int] = ()
    known: bool = False
    byte_length: int = 0

    @staticmethod
    def of(name: str, kind: Slot) -> _Expected:
        if isinstance(kind, str):
            return _Expected(name)
        item_size = ITEM_SIZES[kind.dtype]
        shape = [size if isinstance(size, int) else -1 for size in kind.shape]
        return _Expected(
            name,
            str(kind),
            _element_types(kind.dtype),
            item_size,
            shape,
            -1 not in shape,
            math.prod(shape) * item_size,
        )

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether a result may have these sizes."""
        return len(shape) == len(self.shape) and all(
            size in (-1, given) for size, given in zip(self.shape, shape, strict=True)
        )
