"""`compile_module`: from a model to an executable that knows where its kernels came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from covan_mlir.compilation.captured import EXPORT_LOCK, pipeline_of
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.errors import InputError, TagError
from covan_mlir.executable import Executable
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.frontends import Model, capture
from covan_mlir.lowering import pool, targets
from covan_mlir.machine import host
from covan_mlir.provenance.tags import TagRule, Tags
from covan_mlir.provenance.tags import rules as tag_rules
from covan_mlir.specialised import compile_one, compile_versions
from covan_mlir.support.collector import uncollected
from covan_mlir.support.interrupts import orderly


@orderly()
@uncollected()
def compile_module(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str | Sequence[str] = "cpu",
    dynamic_shapes: Any = None,
    provenance: bool = True,
    options: CompileOptions | None = None,
    tags: Tags | None = None,
    progress: Callable[[str], None] | None = None,
) -> Executable:
    """Compile a model for example arguments.

    Args:
        model: an ``nn.Module``, a function, a ``torch.export.ExportedProgram``, the path of a ``.pt2`` or ``.onnx``
            file, or an ``onnx.ModelProto``; a function of JAX's arrays, a jitted one, what `jax.export` gives, or the
            path of a StableHLO module (``.mlir``, ``.mlirbc``, ``.stablehlo``, ``.jax``); a model of TensorFlow or
            Keras, the path of a SavedModel, of a ``.keras`` or ``.tflite`` file. The module's weights are compiled in
            as they are now; its mutated buffers stay its own.
        args, kwargs: example arguments, any pytree of tensors (torch, numpy, JAX), numbers, strings and None; none are
            needed of an ONNX model, of one of TensorFlow that says what it takes, and of what was exported.
        target: what to compile for: ``cpu`` (this machine), ``cpu:znver4``, ``cpu:aarch64-linux-gnu``, ``vulkan`` (this
            machine's device), ``vulkan:lavapipe``, ``cuda``, ``cuda:sm_90``; or several, in the order in which they
            are preferred: the executable, and the artifact that it saves, take the first that a machine can run.
        dynamic_shapes: as `torch.export.export` takes it. Of an ONNX model or one of TensorFlow, whose symbolic
            dimensions are open already: sizes, or (at least, at most), by their names. Of a JAX function, as
            `jax.export.symbolic_args_specs` takes it.
        provenance: record the lineage. Without it the machine code is the same and ``lineage`` is empty.
        options: see `CompileOptions`.
        tags: tags by action name, module path, group or source line (``{"blocks.0": ["audit:pii"]}``), or what
            `covan_mlir.tag` makes; beside those of enclosing ``with covan_mlir.tag(...)``.
        progress: is told the name of each step before it runs.

    Raises:
        ExportError: the model does not export or import.
        CompileError: the compiler failed or crashed; this process goes on unharmed.
        InputError, TargetError: wrong arguments. A target that this machine cannot run is none: the executable can be
            saved and asked, and only calling it raises `DeviceError`.
        TagError: a tag is malformed, or for something that the model does not have.
    """
    options = options or CompileOptions()
    tell = progress or (lambda step: None)
    if options.specialise is False:
        return compile_capture(
            lambda: capture(model, args, kwargs, dynamic_shapes),
            target=target,
            provenance=provenance,
            options=options,
            tags=tags,
            tell=tell,
        )
    goals, rules = _prepared(target, provenance, options, tags)
    compiled, origin = compile_versions(
        *(model, args, kwargs, dynamic_shapes, goals, options), provenance=provenance, rules=rules, tell=tell
    )
    tell("load")
    return Executable(compiled, origin)


def compile_capture(
    export: Callable[[], Capture],
    *,
    target: str | Sequence[str],
    provenance: bool,
    options: CompileOptions,
    tags: Tags | None,
    tell: Callable[[str], None],
) -> Executable:
    """Compile what ``export`` gives, at the sizes that it gives it for; see `compile_module`."""
    if options.specialise is not False:
        raise InputError("specialise is for models whose sizes compile_module leaves open: leave it out")
    goals, rules = _prepared(target, provenance, options, tags)
    with EXPORT_LOCK:
        tell("export")
        captured = export()
    compiled, origin = compile_one(captured, goals, options, provenance=provenance, rules=rules, tell=tell)
    tell("load")
    return Executable(compiled, origin)


def _prepared(
    target: str | Sequence[str], provenance: bool, options: CompileOptions, tags: Tags | None
) -> tuple[list[targets.Target], tuple[TagRule, ...]]:
    """The targets and the rules of tags, checked, with what takes long to start on its way."""
    goals = targets.parse_all(target)
    rules = tag_rules(tags)
    if rules and not provenance:
        raise TagError("tags are kept in the lineage: compile with provenance=True")
    pool.prepare(options.trace if provenance else "phases")
    if (options.fuse_reductions or options.attach or options.superoptimise) and any(goal.is_host for goal in goals):
        host.prepare()
    return list(goals), tuple(rules)


def pipeline_text(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    target: str = "cpu",
    *,
    dynamic_shapes: Any = None,
    options: CompileOptions | None = None,
) -> str:
    """The pipeline that `compile_module` runs on an imported model, as ``covan-opt --pass-pipeline`` takes it.

    What follows in IREE stands behind it, as comments.

    Raises:
        ExportError: the model does not export or import.
        InputError, TargetError: wrong arguments.
    """
    with EXPORT_LOCK, uncollected():
        captured = capture(model, args, kwargs, dynamic_shapes)
    return pipeline_of(captured, targets.parse(target), options or CompileOptions())
