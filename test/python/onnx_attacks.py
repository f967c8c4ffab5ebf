"""Changed ONNX files, each read and translated in a process of its own (`attacks.attempt`).

Two kinds: ``bytes`` of the file, and ``fields`` of the model that it holds: sizes, types, names, attributes, opsets,
places of external data. Nothing is compiled: what is hostile meets the reader and the translation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attacks
import onnx
from attacks import Case
from google.protobuf.descriptor import FieldDescriptor

from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.onnx.info import told

KINDS = ("bytes", "fields")
_NUMBERS = (0, 1, -1, 2, 7, 2**31, 2**40, -(2**63), 2**63 - 1)
_TEXTS = ("", "x", "\0", "../secret.bin", "/etc/passwd", "weights.bin", "Loop", "NonZero", "Concat", "a" * 10_000)
_INTEGERS = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT64}


def cases(wholes: list[bytes], seed: int | str) -> Iterator[Case]:
    """Changed copies of models, without end; the same for the same seed."""
    rng = random.Random(seed)
    while True:
        whole, kind = rng.choice(wholes), rng.choice(KINDS)
        yield Case(kind, *(attacks.changed_bytes(whole, rng) if kind == "bytes" else _fields(whole, rng)))


def use(path: Path) -> None:
    """What users do first: what is in it, and its program."""
    told(str(path))
    capture(str(path), (), None, None)


def _fields(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    model = onnx.ModelProto.FromString(whole)
    changes = []
    for _ in range(rng.randint(1, 4)):
        holders = list(_messages(model))
        holder = rng.choice(holders)
        fields = [field for field, _ in holder.ListFields()]
        if fields:
            field = rng.choice(fields)
            _change(holder, field, rng)
            changes.append(f"{type(holder).__name__}.{field.name}")
    return " ".join(changes), model.SerializeToString()


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if _repeated(field) else [value]:
                yield from _messages(inner)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change(holder: Any, field: Any, rng: random.Random) -> None:
    values = getattr(holder, field.name)
    if rng.random() < 0.15:
        holder.ClearField(field.name)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if _repeated(field):
            chosen = values[rng.randrange(len(values))]
            if rng.random() < 0.5:
                values.add().CopyFrom(chosen)
            else:
                values.remove(chosen)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        new = rng.choice(_TEXTS)
        _set(holder, field, new if field.type == FieldDescriptor.TYPE_STRING else new.encode(), rng)
    elif field.cpp_type in _INTEGERS:
        most = 2**31 - 1 if field.cpp_type == FieldDescriptor.CPPTYPE_INT32 else 2**63 - 1
        _set(holder, field, max(min(rng.choice(_NUMBERS), most), -most - 1), rng)
    elif field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        _set(holder, field, rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))), rng)


def _set(holder: Any, field: Any, value: Any, rng: random.Random) -> None:
    if _repeated(field):
        values = getattr(holder, field.name)
        values[rng.randrange(len(values))] = value
    else:
        setattr(holder, field.name, value)
