"""A program with versions for some sizes of its open dimensions: the general one, and each that is predicted to pay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.attaching.attach import compile_attached
from covan_mlir.compilation import version_cost, versions
from covan_mlir.compilation.captured import EXPORT_LOCK, Sharing, compile_captured
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import CompileError, ExportError, InputError
from covan_mlir.frontend.frontends import Model, capture
from covan_mlir.frontend.open_dimensions import Example, Wanted
from covan_mlir.lowering.targets import Target
from covan_mlir.provenance.tags import TagRule
from covan_mlir.runtime.compiled_program import CompiledProgram

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


def compile_one(
    captured: Any,
    goals: Sequence[Target],
    options: CompileOptions,
    *,
    provenance: bool,
    rules: Sequence[TagRule],
    tell: Tell,
    sharing: Sharing | None = None,
) -> tuple[CompiledProgram, Origin]:
    """One program for each target, with what is attached.

    Raises:
        InputError, CompileError, TagError: as `covan_mlir.compile_module`.
    """
    if not options.attach:
        compiled = compile_captured(
            captured, goals, options, provenance=provenance, rules=rules, tell=tell, sharing=sharing
        )
        return compiled, Origin(captured, options)
    if not provenance:
        raise InputError("what is attached is placed by the lineage: compile with provenance=True")
    return compile_attached(captured, goals, options, rules=rules, tell=tell, sharing=sharing)


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
    plain = replace(options, specialise=False)
    example = Example.of(model, args, kwargs, dynamic_shapes)
    dimensions = example.dimensions
    asked = versions.wanted(options.specialise, dimensions)
    chosen = isinstance(options.specialise, bool)  # by us, and not by name
    everything = versions.general(options.specialise, dimensions)

    def one(sizes: Mapping[str, Wanted], sharing: Sharing) -> tuple[CompiledProgram, Origin]:
        at = example.with_sizes({**everything, **sizes})
        with EXPORT_LOCK:
            tell("export")
            captured = capture(at.model, at.args, at.kwargs, at.dynamic_shapes)
        return compile_one(
            captured, goals, plain, provenance=provenance, rules=rules, tell=tell, sharing=sharing
        )

    program, origin = one({}, Sharing())
    held = Sharing(versions.layouts(program))
    most = versions.MEMORY * versions.weight_bytes(program)
    called = versions.symbols(program.signature, example.places, everything)
    origins: list[Origin] = []
    for sizes in asked:
        name, needed = versions.told(sizes), versions.needed(sizes)
        tell(f"version {name}")
        try:
            compiled, of_version = one(sizes, held)
        except (ExportError, CompileError) as error:
            if not chosen:
                raise type(error)(f"version {name}: {error}") from error
            log.warning("version %s is left out: %s", name, error)
            continue
        if not needed:
            compiled = _faster(program, compiled, goals, options.winograd, versions.WORTH if chosen else 0.0, name)
        if not compiled.variants:
            continue
        extended, why = versions.versioned(program, compiled, sizes, called)
        if not why and not needed and versions.weight_bytes(extended) > most:
            why = "it would hold weights in other layouts than the other versions"
        if not why:
            program = extended
            origins.append(of_version)
        elif needed:
            raise CompileError(f"version {name} cannot be part of the program: {why}")
        else:
            log.warning("version %s is left out: %s", name, why)
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
