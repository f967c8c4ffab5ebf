"""Kernels as programs hold them: text, and how it is called."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from covan_mlir.machine.elements import bits


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads or writes.

    Attributes:
        shape: sizes of its dimensions; -1 stands for one that is known at run time only.
        dtype: element type as chains call it (``f32``, ``i1``).
        extents: the axes whose sizes these are, in order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    extents: tuple[str, ...] = ()

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Operand:
        """The inverse of `Executable.to_json`, for an operand."""
        return Operand(fields["name"], tuple(fields["shape"]), fields["dtype"], tuple(fields["extents"]))

    @property
    def bytes(self) -> int:
        """That it takes in memory, if its sizes are known."""
        return prod(self.shape) * bits(self.dtype) // 8

    @property
    def tensor(self) -> str:
        """Its type on the side of the program."""
        sizes = ["?" if size < 0 else str(size) for size in self.shape]
        return f"tensor<{'x'.join([*sizes, self.dtype])}>"


@dataclass(frozen=True)
class Dispatch:
    """One of the dispatches of a kernel.

    Attributes:
        name: symbol of the ``hal.executable.source`` and, in it, of its only export.
        inputs: its operands: inputs of the kernel, what is prepared of them, and what earlier dispatches give.
        outputs: its results.
    """

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Dispatch:
        """The inverse of `Executable.to_json`, for a dispatch."""
        return Dispatch(
            fields["name"], *(tuple(map(Operand.from_json, fields[side])) for side in ("inputs", "outputs"))
        )


@dataclass(frozen=True)
class Preparation:
    """An operand that is computed once, when a program is compiled or loaded, from what is the same at every call.

    Attributes:
        operand: what dispatches read; its sizes are known.
        sources: names of the inputs of the call that it is computed from: all of them weights
            (`covan_mlir.fred.chain.Input`).
        text: one private function, which takes the sources and gives the operand: one block of the dialects linalg,
            tensor, arith and math, without aliases. Equal texts of equal sources are computed once a program.
    """

    operand: Operand
    sources: tuple[str, ...]
    text: str

    @property
    def symbol(self) -> str:
        """What it computes, as a name."""
        return f"prepared_{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Preparation:
        """The inverse of `Executable.to_json`, for a preparation."""
        return Preparation(Operand.from_json(fields["operand"]), tuple(fields["sources"]), fields["text"])


def composed(first: Preparation, then: Preparation) -> Preparation:
    """What ``then`` computes of what ``first`` gives, of ``first``'s own sources."""
    arguments, body, result = _function(first.text, "first")
    wanted, rest, last = _function(then.text, "then")
    sources: list[str] = []
    given: list[tuple[str, str]] = []
    for source, argument in zip(then.sources, wanted, strict=True):
        if source == first.operand.name:
            rest, last = (re.sub(rf"{argument[0]}(?![\w.])", result, text) for text in (rest, last))
        sources += first.sources if source == first.operand.name else [source]
        given += arguments if source == first.operand.name else [argument]
    header = ", ".join(f"{name}: {kind}" for name, kind in given)
    kind = then.operand.tensor
    text = f"func.func private @prepared({header}) -> {kind} {{\n{body}{rest}  return {last} : {kind}\n}}\n"
    return Preparation(then.operand, tuple(sources), text)


def _function(text: str, prefix: str) -> tuple[list[tuple[str, str]], str, str]:
    """Of a preparation's function, in which names begin with a prefix: arguments and their types, operations, and what
    it returns."""
    text = re.sub(r"%(\w)", rf"%{prefix}_\1", text)
    header, _, body = text.partition("{\n")
    arguments = re.findall(r"(%\w+): ([^,()]+)", header)
    operations, _, end = body.rpartition("  return ")
    return arguments, operations, end.partition(" :")[0]


def with_prepared(inputs: tuple[Operand, ...], preparations: tuple[Preparation, ...]) -> tuple[Operand, ...]:
    """What is prepared, in place of what it is prepared of."""
    sources = {source for preparation in preparations for source in preparation.sources}
    kept = [operand for operand in inputs if operand.name not in sources]
    return (*kept, *(preparation.operand for preparation in preparations))


@dataclass(frozen=True)
class Executable:
    """Code for one kernel, and how it is called: all that a program needs to hold it.

    Attributes:
        name: symbol of the function that calls stand for; those of its dispatches begin with it.
        text: a module that holds nothing but the ``hal.executable.source`` of each dispatch.
        inputs: operands of a call.
        outputs: results of a call.
        dispatches: in order; what one writes and a later one reads is named by both. The last one gives the outputs.
        sizes: axes whose sizes each dispatch takes at run time, in order, as its workload and as 32-bit operands after
            all others.
        preparations: operands of dispatches that are computed ahead of time; an input that only these read is not in
            memory when the program runs.
    """

    name: str
    text: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    dispatches: tuple[Dispatch, ...]
    sizes: tuple[str, ...] = ()
    preparations: tuple[Preparation, ...] = ()

    @staticmethod
    def single(
        name: str,
        text: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[Operand, ...],
        *,
        sizes: tuple[str, ...] = (),
        preparations: tuple[Preparation, ...] = (),
    ) -> Executable:
        """A kernel that is one dispatch, which reads `with_prepared` of its inputs."""
        dispatch = Dispatch(name, with_prepared(inputs, preparations), outputs)
        return Executable(name, text, inputs, outputs, (dispatch,), sizes, preparations)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return fields

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Executable:
        """The inverse of `to_json`."""
        inputs, outputs = (tuple(map(Operand.from_json, fields[side])) for side in ("inputs", "outputs"))
        dispatches = tuple(map(Dispatch.from_json, fields["dispatches"]))
        return Executable(
            fields["name"],
            fields["text"],
            inputs,
            outputs,
            dispatches,
            tuple(fields["sizes"]),
            tuple(map(Preparation.from_json, fields["preparations"])),
        )


@dataclass(frozen=True)
class Refusal:
    """Why there is no kernel for a chain.

    Attributes:
        suits: whether the chain is one that the template is for. If it is not, there is no kernel for reasons that
            other templates know.
    """

    reason: str
    suits: bool = True
