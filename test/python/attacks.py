"""Changed artifacts, and a process of its own for each that loads and calls it.

Four kinds: ``bytes`` of the file; its ``zip`` structure; ``json`` members and the ``program``, with hashes that agree.
Programs are machine code: changed ones may do anything, and are loaded and called isolated, where nothing of that may
reach the caller.

Each process is a fork of one that has imported all that is needed, and has used no device. Its time is its own CPU
time and its memory what it grows by, so neither a busy machine nor the process it comes from counts.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import select
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.ma  # imported on first use otherwise, by each fork
from artifacts import forge
from forked_workers import ForkedWorker

import covan_mlir
import covan_mlir.loading
from covan_mlir.artifacts import pytree
from covan_mlir.artifacts.signature import Leaf, Signature, evaluate
from covan_mlir.runtime import values
from covan_mlir.runtime.isolation import program

Outcome = Literal["ran", "refused", "exception", "crash", "timeout", "memory"]
HARMLESS: tuple[Outcome, ...] = ("ran", "refused")
KINDS = ("bytes", "zip", "json", "program")
MESSAGE = 2000
"""Characters of an error's message, at most."""
SECONDS = 5.0
"""Of CPU time that reading, explaining and calling an artifact may take."""
_SIZE = 3  # of what is open
_WORD = 8  # bytes: how a fork says by how much it grew
_HANG = 600.0  # seconds after which what takes no CPU time hangs
_BOMB = 16 << 20  # bytes of JSON text, which deflates to thousands
_LIMITS = covan_mlir.Isolation(timeout=10.0, memory=1 << 30)
_EVIL: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 2**31, 2**53, 2**63 - 1, 2**64, 10**30, 0.5, -0.0, 1e308, "", "x" * 10_000, "\0", "\ud800",
    [], {}, [[]], [1] * 74, [0] * 40, [2**40, 2**40], {"float": "nan"}, "s0", "s0//0", "9**9**9", "1+" * 4000 + "1",
    "(" * 3000 + "1" + ")" * 3000, "-" * 5000 + "1", "a.b", "s0*s1", "complex64", "float64", "int8", "bool", "bfloat16",
    "float8_e5m2", ["*"], "*", {"kind": "list", "children": ["*"]}, ["output", 0], ["state", 0], ["input", 0],
    {"kind": "tensor", "name": "t", "dtype": "float32", "shape": [1 << 40]},
    {"kind": "scalar", "name": "n", "dtype": "int", "symbol": "s0"}, {"kind": "constant", "name": "c", "value": 1},
    {"kind": "custom", "name": "collections.defaultdict", "context": '{"default_factory_module": "os"}',
     "children": []},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A changed artifact.

    Attributes:
        kind: of `KINDS`.
        what: was changed.
    """

    kind: str
    what: str
    data: bytes


@dataclass(frozen=True)
class Result:
    """What became of one.

    Attributes:
        text: the error's message, or the traceback of what is no `covan_mlir.CovanError`.
        peak: bytes by which the process grew, at most; 0 for one that crashed.
        seconds: of CPU time, with those of the program's own process.
    """

    outcome: Outcome
    text: str
    peak: int
    seconds: float


def allowed(size: int) -> int:
    """Bytes by which a process may grow that uses an artifact of so many bytes."""
    return 4 * size + (200 << 20)


def cases(whole: bytes, folder: Path, seed: int | str, kinds: Sequence[str] = KINDS) -> Iterator[Case]:
    """Changed copies of an artifact, without end; the same for the same seed.

    Args:
        folder: where files can be written meanwhile.
    """
    rng = random.Random(seed)
    changes: dict[str, Callable[[bytes, Path, random.Random], tuple[str, bytes]]] = {
        "bytes": _bytes,
        "zip": _zip,
        "json": _json,
        "program": _program,
    }
    while True:
        kind = rng.choice(kinds)
        yield Case(kind, *changes[kind](whole, folder, rng))


def _bytes(whole: bytes, _folder: Path, rng: random.Random) -> tuple[str, bytes]:
    return changed_bytes(whole, rng)


def changed_bytes(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Bytes of a file that are others, more or fewer; and what was done."""
    data = bytearray(whole)
    what = rng.choice(["flip", "cut", "insert", "remove", "copy"])
    at, length = rng.randrange(len(data)), rng.randint(1, 100)
    match what:
        case "flip":
            for _ in range(rng.randint(1, 20)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case "cut":
            del data[at:]
        case "insert":
            data[at:at] = rng.randbytes(length)
        case "remove":
            del data[at : at + length]
        case "copy":
            source = rng.randrange(len(data))
            data[at : at + length] = data[source : source + length]
    return f"{what} at {at}", bytes(data)


def _forged(whole: bytes, folder: Path, edit: Callable[[dict[str, bytes]], object], **how: Any) -> bytes:
    path = folder / "forged.covan"
    path.write_bytes(whole)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a member twice is what is wanted
        forge(path, edit, **how)
    return path.read_bytes()


def _zip(whole: bytes, folder: Path, rng: random.Random) -> tuple[str, bytes]:
    chosen: list[str] = []

    def edit(members: dict[str, bytes]) -> None:
        name = rng.choice(sorted(members))
        chosen.append(name)
        match rng.randrange(5):
            case 0 if name != "manifest.json":
                del members[name]
            case 1:
                members[rng.choice(["weights/0.bin", "program.1.vmfb", "lineage.1.json", "states/7.bin", "x"])] = (
                    b"data"
                )
            case 2:
                members[name] = members[name][: rng.randrange(len(members[name]) + 1)]
            case 3:
                other = rng.choice(sorted(members))
                members[name], members[other] = members[other], members[name]
            case _:
                members[name] = rng.choice([rng.randbytes(rng.randint(0, 300)), b"[" * _BOMB, b" " * _BOMB])

    how: dict[str, Any] = {"relist": rng.random() < 0.5}
    match rng.randrange(4):
        case 0:
            how["rename"] = {
                "signature.json": rng.choice(["manifest.json", "../x", "program.vmfb", "states/0.bin", ""])
            }
        case 1:
            how["attributes"] = {"program.vmfb": rng.choice([stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR]) << 16}
    try:
        data = bytearray(_forged(whole, folder, edit, **how))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):  # what was swapped is no manifest
        data = bytearray(whole)
    for _ in range(rng.randint(0, 4)):  # the directory at the end, and its own numbers
        at = len(data) - 1 - rng.randrange(min(len(data), 600))
        data[at] = rng.choice([0, 0xFF, data[at] ^ 1, rng.randrange(256)])
    return f"{chosen} {how}", bytes(data)


def _json(whole: bytes, folder: Path, rng: random.Random) -> tuple[str, bytes]:
    said: list[str] = []

    def edit(members: dict[str, bytes]) -> None:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            weights = {name: 1 + 2 * (name == "signature.json") for name in sorted(members) if name.endswith(".json")}
            name = rng.choices(list(weights), list(weights.values()))[0]
            value = json.loads(members[name])
            said.append(f"{name}{_change(value, rng)}")
            members[name] = json.dumps(value).encode()

    try:
        data = _forged(whole, folder, edit)
    except (ValueError, KeyError, AttributeError, TypeError):  # the manifest lists no members any more
        data = whole
    return ", ".join(said), data


def _change(value: Any, rng: random.Random) -> str:
    """Change one value inside of lists and objects, at a random place; -> the place."""
    path = ""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return path
        key = rng.choice(keys)
        path += f"[{key!r}]"
        if isinstance(value[key], list | dict) and value[key] and rng.random() < 0.85:
            value = value[key]
            continue
        match rng.randrange(6):
            case 0:
                del value[key]
            case 1 if isinstance(value, list):
                most = _BOMB // len(json.dumps(value[key]))
                value[key:key] = [value[key]] * min(rng.choice([1, 2, 100, _BOMB]), most)
            case 2 if type(value[key]) is int:
                value[key] += rng.choice([-1, 1, 2, 1 << 20])
            case 3:
                other = rng.choice(keys)
                value[key], value[other] = value[other], value[key]
            case 4:
                deep: Any = []
                for _ in range(rng.choice([3, 70, 400])):
                    deep = rng.choice([[deep], {"kind": "list", "children": [deep]}])
                value[key] = deep
            case _:
                value[key] = rng.choice(_EVIL)
        return path


def _program(whole: bytes, folder: Path, rng: random.Random) -> tuple[str, bytes]:
    def edit(members: dict[str, bytes]) -> None:
        program = bytearray(members["program.vmfb"])
        for _ in range(rng.randint(1, 8)):
            program[rng.randrange(len(program))] = rng.choice([0, 0xFF, rng.randrange(256)])
        members["program.vmfb"] = bytes(program)

    return "", _forged(whole, folder, edit)


# --- what becomes of them ---------------------------------------------------------------------------------------------


def attempt(
    path: Path, isolated: bool = False, spawned: bool = True, use: Callable[[Path], object] | None = None
) -> Result:
    """Load, explain and call an artifact in a fork of this process, which must not have used any device itself.

    Args:
        use: what is done with the file instead.
        isolated: the fork runs the program in a process of its own.
        spawned: that process is started as users' are, and is no fork.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        if not spawned:
            program.Child = ForkedWorker  # type: ignore[misc]  # in its place
        _child(path, writer, isolated, use)
    os.close(writer)
    said = bytearray()
    deadline = time.monotonic() + _HANG
    while timely := bool(select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]):
        if not (piece := os.read(reader, 1 << 16)):
            break
        said += piece
    os.close(reader)
    if not timely:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    peak, text = int.from_bytes(said[:_WORD], "big"), said[_WORD:].decode(errors="replace")
    outcome: Outcome = "crash"
    if not timely or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF):
        outcome = "timeout"
    elif os.WIFEXITED(status) and said:
        outcomes: dict[int, Outcome] = {0: "ran", 1: "refused", 2: "exception"}
        outcome = outcomes.get(os.WEXITSTATUS(status), "crash")
    if outcome in ("crash", "timeout"):
        text = f"{text_of(status)} {text}"
    elif peak > allowed(path.stat().st_size):
        outcome, text = "memory", f"{peak >> 20} MiB: {text}"
    return Result(outcome, text, peak, usage.ru_utime + usage.ru_stime)


def _resident() -> int:
    """Bytes of this process that are in memory now. In a fork, mapped files are not, until they are read again."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def text_of(status: int) -> str:
    """How a process ended."""
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"


def _child(path: Path, writer: int, isolated: bool, use: Callable[[Path], object] | None) -> None:
    code = 3
    try:
        before = _resident()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        # Of its own CPU time, and no child's: SIGPROF ends it.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        code, text = _use(path, _LIMITS if isolated else False, use)
        peak = max(0, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before)
        os.write(writer, peak.to_bytes(_WORD, "big") + text.encode(errors="replace")[:60_000])
    finally:
        os._exit(code)


def _use(path: Path, isolated: covan_mlir.Isolation | bool, use: Callable[[Path], object] | None) -> tuple[int, str]:
    try:
        if use is not None:
            use(path)
            return 0, ""
        executable = covan_mlir.load(path, isolated=isolated)
        executable.explain()
        args, kwargs = _arguments(executable.signature)
        executable(*args, **kwargs)
    except covan_mlir.CovanError as error:
        if len(str(error)) > MESSAGE:
            return 2, f"a message of {len(str(error))} characters: {error!s:.300}"
        return 1, str(error)
    except BaseException:
        return 2, traceback.format_exc()
    return 0, ""


def _arguments(signature: Signature) -> tuple[Any, Any]:
    """Ones for tensors that the signature describes; nothing where that is too large to be there."""
    symbols = dict.fromkeys(signature.symbols, _SIZE)
    leaves = [_value(leaf, symbols) for leaf in signature.inputs]
    args, kwargs = pytree.unflatten(signature.in_tree, leaves)
    return args, kwargs


def _value(leaf: Leaf, symbols: dict[str, int]) -> Any:
    if leaf.kind != "tensor":
        return leaf.value if leaf.kind == "constant" else {"int": 2, "float": 2.0, "bool": True}[leaf.dtype]
    sizes = [evaluate(size, symbols) if isinstance(size, str) else size for size in leaf.shape]
    shape = [_SIZE if size is None or size < 0 else size for size in sizes]
    if len(shape) > 64 or math.prod(shape) > 1 << 20 or not values.supported(leaf.dtype):
        return None
    return np.ones(shape, values.numpy_dtype(leaf.dtype))
