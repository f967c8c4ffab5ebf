"""Compiles a model again with some of its tensors as results, and runs that."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from covan_mlir.comparing.running import ReturnedTensor, RunError, run
from covan_mlir.comparing.taps import tapped
from covan_mlir.compilation.captured import compile_captured
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.errors import CompileError, ExportError
from covan_mlir.frontend.capture import Capture
from covan_mlir.lowering import targets
from covan_mlir.provenance.model import LineageData
from covan_mlir.runtime.compiled import CompiledModel


class ProbeError(Exception):
    """A program could not be compiled, or gave no results."""


@dataclass(frozen=True)
class Observation:
    """What a program with taps gave.

    Attributes:
        values: tensors of the taps, by node name.
        outputs: the program's own results, flat; None for those that are no tensors. Empty if they were left out.
        lineage: of the program with taps.
    """

    values: Mapping[str, Callable[[], torch.Tensor]]
    outputs: list[ReturnedTensor | None]
    lineage: LineageData


@dataclass
class Prober:
    """Makes programs with taps of one model, for one list of arguments.

    Attributes:
        leaves: the arguments, flat.
        folder: for files.
        strides: of tensors that are too large to be observed whole.
        timeout: seconds that a program may run.
        compilations: so far.
    """

    captured: Capture
    options: CompileOptions
    target: str
    leaves: Sequence[Any]
    folder: Path
    strides: Mapping[str, int]
    timeout: float | None
    tell: Callable[[str], None]
    compilations: int = 0

    def __post_init__(self) -> None:
        self._numbers = itertools.count()

    def new_folder(self) -> Path:
        """The path of a folder that does not exist yet."""
        return self.folder / f"run{next(self._numbers)}"

    def observe(self, names: Sequence[str], *, keep: bool = True) -> Observation:
        """Compile with taps, and run.

        Raises:
            ProbeError: it does not compile, or it crashes.
        """
        program = tapped(self.captured.program, names, keep=keep, strides=self.strides)
        what = names[0] if len(names) == 1 else f"{len(names)} tensors"
        self.tell(f"compiling with {what} observed")
        self.compilations += 1
        try:
            compiled = CompiledModel(
                compile_captured(
                    replace(self.captured, program=program, taps=()), targets.parse_all(self.target), self.options
                )
            )
        except (CompileError, ExportError) as error:
            raise ProbeError(f"it does not compile: {str(error).splitlines()[0]}") from error
        self.tell(f"running with {what} observed")
        folder = self.new_folder()
        try:
            results = run(compiled, self.leaves, folder, self.timeout)
        except RunError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ProbeError(str(error)) from error
        own, taps = results[: len(results) - len(names)], results[len(results) - len(names) :]
        values: dict[str, Callable[[], torch.Tensor]] = {}
        for name, result in zip(names, taps, strict=True):
            assert result is not None
            values[name] = result.read
        return Observation(values, own, compiled.lineage)


def same_sites(one: LineageData, other: LineageData) -> bool:
    """Whether two programs of one model are cut into the same sites."""

    def cut(lineage: LineageData) -> list[tuple[str, ...]]:
        return sorted(tuple(lineage.actions[i].name for i in site.trace) for site in lineage.sites)

    return cut(one) == cut(other)
