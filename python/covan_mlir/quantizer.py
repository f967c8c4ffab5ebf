"""`quantize`: a model in fewer bits, calibrated with data, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from covan_mlir.compile import compile_module
from covan_mlir.executable import Executable
from covan_mlir.frontend.frontends import Model
from covan_mlir.quantizing.data import Calibration, Call
from covan_mlir.quantizing.quantize import Given, quantized
from covan_mlir.quantizing.report import QuantizationReport
from covan_mlir.quantizing.scheme import Activations, Mode, ObserverKind, Scheme
from covan_mlir.support.interrupts import orderly


@dataclass(frozen=True)
class Quantized:
    """A model in fewer bits.

    Attributes:
        exported: the program, for `compile_module`, `torch.export.save` or torch itself. Its arguments and results are
            those of the model that it was made of.
        report: what it costs, tensor by tensor and layer by layer.
    """

    exported: ExportedProgram
    report: QuantizationReport

    def compile(self, **options: Any) -> Executable:
        """The program, compiled.

        Args:
            options: as of `compile_module`: ``target``, ``options``, ``progress`` and others.

        Raises:
            CompileError, TargetError: as `compile_module`.
        """
        return compile_module(self.exported, **options)


@orderly()
def quantize(
    model: Model,
    calibration: Calibration | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: Mode = "int8",
    activations: Activations = "u8",
    observer: ObserverKind = "minmax",
    keep: str | Sequence[str] = (),
    group: int = 128,
    bound_db: float = 20.0,
    target: str = "cpu",
    dynamic_shapes: Any = None,
    progress: Callable[[str], None] | None = None,
) -> Quantized:
    """Quantise a model: its linear layers, convolutions and products by weights become products of few bits.

    The model is left as it is, also when it is stopped by Ctrl-C.

    Args:
        model: as `compile_module` takes it, in float and in inference; or what `prepare_qat_pt2e` (trained since) or
            `prepare_pt2e` of torchao gave.
        calibration: calls like those that the model is made for, some tens to hundreds: an iterable of tuples of
            arguments, of dicts of named ones, or of single tensors; or a dict of arrays by the names of arguments, or
            the path of an ``.npz`` file of these (``arr_0`` is the first). An array's first axis counts calls, or is
            that of the model's argument, cut into pieces as long as it. Modes without steps of activations measure
            with it alone, and take ``args`` for it if there is none.
        args, kwargs: example arguments, as of `compile_module`; by default the first call of the calibration.
        mode: ``int8``: weights of 8 bits, symmetric for each channel, and what they multiply of 8 bits, affine for the
            whole tensor (Jacob et al. 2018, sections 2 and 3); ``weights-int8``: weights alone; ``weights-int4``: in
            groups of a row; ``bf16``: layers compute in bfloat16.
        activations: of ``int8``: steps without a sign (``u8``) or with one (``s8``).
        observer: of ``int8``: steps cover all values of the calibration (``minmax``), all but one in ten thousand at
            each end (``percentile``), or the range of the least square error (``mse``).
        keep: what stays in float: module paths, which stand for all that is inside, or names of actions; patterns as
            of `fnmatch`.
        group: of ``weights-int4``: weights of a row that share a scale.
        bound_db: signal-to-noise ratio, in dB, that is expected of tensors: the report names the first below it, and
            what to keep in float to lift the results to it.
        target: what the model is for, as of `compile_module`: which layers there is something to win of depends on its
            vectors, and the report tells how it multiplies steps.
        dynamic_shapes: as of `compile_module`.
        progress: is told the name of each step before it runs.

    Raises:
        ExportError: the model does not export.
        TargetError: there is no such target.
        InputError: there is no calibration data, a call of it does not fit the model or has NaN; the model is quantised
            already or in training mode; ``keep`` names what is not there; nothing can be quantised; another argument is
            none of those that there are; torchao is not installed, which ``int8`` needs.
    """
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    scheme = Scheme(mode, activations, observer, kept, group, bound_db, target)
    example = Call(tuple(args), dict(kwargs or {})) if args or kwargs else None
    exported, report = quantized(
        Given(model, calibration, example, dynamic_shapes), scheme, progress or (lambda step: None)
    )
    return Quantized(exported, report)
