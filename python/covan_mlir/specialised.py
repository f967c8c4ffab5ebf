"""A program with versions for some sizes of its open dimensions: the general one, and each that is predicted to pay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.attaching.attach import compile_attached
from covan_mlir.compilation import version_cost, versions
from covan_mlir.compilation.captured import EXPORT_LOCK, VersionFacts, compile_captured
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import CompileError, ExportError, InputError
from covan_mlir.frontend.frontends import Model, capture
from covan_mlir.frontend.open_dimensions import Example, Wanted
from covan_mlir.lowering.targets import Target
from covan_mlir.provenance.tags import TagRule
from covan_mlir.runtime.compiled_program import CompiledProgram

log = logging.getLogger(__name__)

NOT_FASTER = "it is not predicted to be faster than the general one"
Tell = Callable[[str], None]


def compile_one(
    captured: Any,
    goals: Sequence[Target],
    options: CompileOptions,
    *,
    provenance: bool,
    rules: Sequence[TagRule],
    tell: Tell,
    facts: VersionFacts | None = None,
) -> tuple[CompiledProgram, Origin]:
    """One program for each target, with what is attached.

    Raises:
        InputError, CompileError, TagError: as `covan_mlir.compile_module`.
    """
    if not options.attach:
        compiled = compile_captured(
            captured, goals, options, provenance=provenance, rules=rules, tell=tell, facts=facts
        )
        return compiled, Origin(captured, options)
    if not provenance:
        raise InputError("what is attached is placed by the lineage: compile with provenance=True")
    return compile_attached(captured, goals, options, rules=rules, tell=tell, facts=facts)


class Specialiser:
    """Compiles a model for some sizes of its open dimensions.

    Attributes:
        example: with which it is exported.
        dimensions: the open dimensions by name.
        general: the sizes that the general program is for, of those dimensions that versions are for.
    """

    def __init__(
        self,
        example: Example,
        names: Iterable[str],
        sizes: Iterable[int],
        goals: Sequence[Target],
        options: CompileOptions,
        *,
        provenance: bool = True,
        rules: Sequence[TagRule] = (),
        tell: Tell = lambda step: None,
    ) -> None:
        self.example, self.dimensions = example, example.dimensions
        self.general = versions.general(names, self.dimensions)
        self._goals, self._options = goals, replace(options, specialise=False)
        self._provenance, self._rules, self._tell = provenance, rules, tell
        self._facts, self._most = VersionFacts(others=tuple(sorted(set(sizes)))), 0.0
        self._symbols: Mapping[str, str] = {}

    def program(self) -> tuple[CompiledProgram, Origin]:
        """The general program.

        Raises:
            InputError, ExportError, CompileError, TagError: as `covan_mlir.compile_module`.
        """
        program, origin = self._compiled(self.example, {})
        self._symbols = versions.symbols(program.signature, self.example.places, self.general)
        self._facts = VersionFacts(versions.layouts(program))
        self._most = versions.MEMORY * versions.weight_bytes(program)
        return program, origin

    def version(
        self, program: CompiledProgram, sizes: Mapping[str, Wanted], *, example: Example | None = None, worth: float
    ) -> tuple[CompiledProgram, Origin] | str:
        """A program with one more version; or why it is not to have it.

        Args:
            program: the general one, with the versions that it has.
            example: another one of the same model.
            worth: part of its time by which a version has to be faster than the general program, where that is right
                for its sizes.

        Raises:
            InputError, ExportError, CompileError: it cannot be compiled.
        """
        name, needed = versions.told(sizes), versions.needed(sizes)
        try:
            compiled, origin = self._compiled(example or self.example, sizes)
        except (ExportError, CompileError) as error:
            raise type(error)(f"version {name}: {error}") from error
        if not needed:
            compiled = _faster(program, compiled, self._goals, self._options.winograd, worth, name)
        if not compiled.variants:
            return NOT_FASTER
        extended, why = versions.versioned(program, compiled, sizes, self._symbols)
        if not why and not needed and versions.weight_bytes(extended) > self._most:
            why = "it would hold weights in other layouts than the general one"
        if why and needed:
            raise CompileError(f"version {name} cannot be part of the program: {why}")
        return why or (extended, origin)

    def alone(self, sizes: Mapping[str, Wanted], *, example: Example | None = None) -> tuple[CompiledProgram, Origin]:
        """A program for these sizes, where there is no general one.

        Raises:
            InputError, ExportError, CompileError: it cannot be compiled.
        """
        return self._compiled(example or self.example, sizes)

    def _compiled(self, example: Example, sizes: Mapping[str, Wanted]) -> tuple[CompiledProgram, Origin]:
        at = example.with_sizes({**self.general, **sizes})
        with EXPORT_LOCK:
            self._tell("export")
            captured = capture(at.model, at.args, at.kwargs, at.dynamic_shapes)
        return compile_one(
            *(captured, self._goals, self._options),
            provenance=self._provenance,
            rules=self._rules,
            tell=self._tell,
            facts=replace(self._facts, usual=versions.usual({**self.general, **sizes}, sizes)),
        )


def compile_versions(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    goals: Sequence[Target],
    options: CompileOptions,
    *,
    provenance: bool,
    rules: Sequence[TagRule],
    tell: Tell,
) -> tuple[CompiledProgram, Origin]:
    """The general program and its versions, as ``options.specialise`` names them.

    Raises:
        InputError: sizes of the model are not open by name, or may not be what was asked for.
        ExportError, CompileError, TagError: as `covan_mlir.compile_module`.
    """
    if not provenance:
        raise InputError("specialise: versions are chosen by what the lineage says: compile with provenance=True")
    example = Example.of(model, args, kwargs, dynamic_shapes)
    asked = versions.wanted(options.specialise, example.dimensions)
    named = not isinstance(options.specialise, bool)
    names = options.specialise if not isinstance(options.specialise, bool) else example.dimensions
    middles = [versions.middle(*bounds) for each in asked for bounds in each.values()]
    specialiser = Specialiser(example, names, middles, goals, options, provenance=provenance, rules=rules, tell=tell)
    program, origin = specialiser.program()
    origins: list[Origin] = []
    for sizes in asked:
        name = versions.told(sizes)
        tell(f"version {name}")
        try:
            built = specialiser.version(program, sizes, worth=0.0 if named else versions.WORTH)
        except (ExportError, CompileError) as error:
            if named:
                raise
            built = str(error)
        if isinstance(built, str):
            log.log(logging.INFO if built == NOT_FASTER else logging.WARNING, "version %s is left out: %s", name, built)
            continue
        program, of_version = built
        origins.append(of_version)
    return program, replace(origin, versions=tuple(origins))


def _faster(
    general: CompiledProgram,
    compiled: CompiledProgram,
    goals: Sequence[Target],
    winograd: int,
    least: float,
    name: str,
) -> CompiledProgram:
    """A version for the targets on which it is predicted to be faster than the general program."""
    kept = []
    for goal, before, variant in zip(goals, general.variants, compiled.variants, strict=True):
        predicted = version_cost.predict(before.lineage, variant.lineage, goal, winograd)
        if predicted is None:
            log.info("version %s is left out for %s: its time is not predicted", name, goal.name)
        elif predicted.saved <= least:
            log.info(
                "version %s is left out for %s: predicted to take %.2f us there, where the general one takes %.2f",
                *(name, goal.name, predicted.version * 1e6, predicted.general * 1e6),
            )
        else:
            log.info(
                "version %s for %s: predicted to take %.2f us, where the general one takes %.2f",
                *(name, goal.name, predicted.version * 1e6, predicted.general * 1e6),
            )
            kept.append(variant)
    return replace(compiled, variants=tuple(kept))
