"""A program outside of its artifact: a folder that IREE's own tool runs, without covan and without Python.

::

    program.vmfb      the compiled program
    weights.irpa      what it reads from outside, as IREE's parameter archive; only if there is any
    inputs/<n>.npy    the arguments of one call, in the program's order
    results/          what a run writes
    run.sh            the one command
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covan_mlir.artifacts import binding
from covan_mlir.artifacts.signature import PARAMETER_SCOPE, Leaf, Signature
from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import CovanError, InputError
from covan_mlir.runtime import checks, choice, team, values
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.runtime.tool_files import UNKNOWN, ToolArgument, write_argument, write_weights

TOOL = "iree-run-module"


def extract(compiled: CompiledProgram, variant: Variant, leaves: Sequence[Any], folder: str | os.PathLike[str]) -> str:
    """Write the folder. It is there as a whole or not at all; no device is touched.

    Args:
        variant: of the program's, the one that is written.
        leaves: the arguments of a call, flat, in the order of the signature: numbers and numpy arrays.
        folder: that does not exist, or is empty.

    Returns:
        the driver that the command names.

    Raises:
        InputError, OutOfRangeError, DivisionError: the arguments do not fit.
        CovanError: the folder cannot be written, or holds something.
    """
    arguments = _arguments(compiled, variant, leaves)
    driver = choice.driver(compiled.device, variant.requires, variant.info)
    if driver == team.DRIVER:  # the tool is a program of IREE's, and has no such threads
        driver = "local-task"
    with _new_folder(folder) as place:
        (place / "program.vmfb").write_bytes(variant.program)
        flags = [f"--device={driver}", "--module=program.vmfb", f"--function={compiled.signature.function}"]
        if compiled.weights and variant.info.get("weights") != "arguments":
            write_weights(place / "weights.irpa", {name: values.raw(value) for name, value in compiled.weights.items()})
            flags.append(f"--parameters={PARAMETER_SCOPE}=weights.irpa")
        for inner in ("inputs", "results"):
            (place / inner).mkdir()
        told: list[str] = []
        for index, (what, argument) in enumerate(arguments):
            spelled = write_argument(place / "inputs", str(index), argument, Path("inputs"))
            flags.append(f"--input={spelled}")
            told.append(f"input {index}: {what}")
        for index, (what, dtype) in enumerate(_results(compiled.signature)):
            file = f"results/{index}.{'bin' if dtype in UNKNOWN else 'npy'}"
            flags.append(f"--output=@{file}")
            told.append(f"{file}: {what}")
        script = place / "run.sh"
        script.write_text(_script(flags, told, variant, compiled.versions), "utf-8")
        script.chmod(0o777 & ~_umask())
    return driver


def _arguments(compiled: CompiledProgram, variant: Variant, leaves: Sequence[Any]) -> list[tuple[str, ToolArgument]]:
    """All that the program takes, with what each is."""
    signature = compiled.signature
    symbols: dict[str, int] = {}
    arguments: list[tuple[str, ToolArgument]] = []
    for leaf, value in zip(signature.inputs, leaves, strict=True):
        if leaf.kind == "constant":
            binding.check_constant(leaf, value)
        elif leaf.kind == "scalar":
            arguments.append((_told(leaf), ToolArgument(binding.scalar(leaf, value, symbols))))
        else:
            if not isinstance(value, np.ndarray | np.generic):
                raise InputError(f"argument {leaf.name} is a {type(value).__name__}; expected a tensor")
            binding.check_dtype(leaf, values.dtype_of(value))
            binding.check_shape(leaf, tuple(value.shape), symbols)
            if leaf.fixed is not None:
                binding.check_fixed(leaf, value)
            arguments.append((_told(leaf), _tensor(value, leaf.dtype)))
    binding.check_symbols(signature, symbols)
    checks.ArgumentChecks(signature)(leaves, symbols)
    for state in signature.states:
        shape = ", ".join(map(str, state.shape))
        value = compiled.states.read(state.name)
        arguments.append((f"buffer {state.name}: {state.dtype}[{shape}]", _tensor(value, state.dtype)))
    if variant.info.get("weights") == "arguments":
        for name, value in compiled.weights.items():
            arguments.append((f"weight {name}", _tensor(value, values.dtype_of(value))))
    return arguments


def _tensor(value: Any, dtype: str) -> ToolArgument:
    if dtype in values.PAIRS:
        return _tensor(values.as_pairs(value), values.PAIRS[dtype])
    array = values.host_array(value, dtype)
    return ToolArgument(values.plain_bools(array) if dtype == "bool" else array, dtype)


def _results(signature: Signature) -> Iterator[tuple[str, str]]:
    """Of each result what it is, and its dtype as the program has it."""
    for kind, target in signature.results:
        if kind == "faults":
            check = signature.computed_checks[target]
            yield f"whether {check.op} at {check.file}:{check.line} was given what it cannot take", "bool"
        elif kind == "state":
            state = signature.states[target]
            yield f"new value of buffer {state.name}", _passed(state.dtype)
        elif kind == "input":
            leaf = signature.inputs[target]
            yield f"new value of argument {_told(leaf)}", _passed(leaf.dtype)
        else:
            leaf = signature.outputs[target] if kind == "output" else signature.tap_leaves[target]
            yield f"{kind} {target}: {leaf.type_string()}", _passed(leaf.dtype)


def _passed(dtype: str) -> str:
    return values.PAIRS.get(dtype, dtype)


def _told(leaf: Leaf) -> str:
    return f"{leaf.name}: {leaf.type_string()}"


def _script(flags: Sequence[str], told: Sequence[str], variant: Variant, versions: Mapping[str, str]) -> str:
    made = versions.get("iree-base-compiler", "?")
    notes = [
        f"For {variant.target}, compiled by IREE {made}: its runtime's {TOOL} of that version runs it.",
        "Complex tensors are pairs of real numbers; files that end in .bin hold bfloat16.",
        *told,
    ]
    command = " \\\n  ".join([f'exec "${{IREE_RUN_MODULE:-{TOOL}}}"', *map(shlex.quote, flags), '"$@"'])
    # What comes from the model stands in comments: one line each, whatever it holds.
    comments = "".join(f"# {' '.join(note.split())}\n" for note in notes)
    return f'#!/bin/sh\n{comments}set -e\ncd "$(dirname "$0")"\n{command}\n'


@contextlib.contextmanager
def _new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder beside ``folder``, which takes its place at the end."""
    name = Path(os.path.abspath(folder))
    try:
        if name.is_symlink() or (name.exists() and not (name.is_dir() and not any(name.iterdir()))):
            raise CovanError(f"{name}: is there and not empty\nGive a folder that does not exist, or remove it")
        temporary = Path(tempfile.mkdtemp(prefix=f".{name.name[:40]}-", dir=name.parent))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            os.replace(temporary, name)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise CovanError(f"{name}: cannot be written: {error.strerror or error}\nChoose another folder") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
