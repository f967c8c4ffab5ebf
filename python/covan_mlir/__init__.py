"""covan: compile PyTorch models through torch-mlir and IREE without losing track of where anything came from.

Names are imported on first use: loading and running an artifact needs neither torch nor a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from covan_mlir.support import bindings_apart
from covan_mlir.support.collector import uncollected
from covan_mlir.support.interrupts import orderly
from covan_mlir.version import __version__

bindings_apart.install()

_PUBLIC = {
    "compile_module": "covan_mlir.compile",
    "load": "covan_mlir.loading",
    "adaptive": "covan_mlir.adaptor",
    "Adaptive": "covan_mlir.adaptor",
    "tune": "covan_mlir.tuner",
    "tune_models": "covan_mlir.tuner",
    "Tuning": "covan_mlir.tuning.report",
    "quantize": "covan_mlir.quantizer",
    "Quantized": "covan_mlir.quantizer",
    "compile_training_step": "covan_mlir.trainer",
    "TrainingStep": "covan_mlir.trainer",
    "last_compiled": "covan_mlir.dynamo",
    "tag": "covan_mlir.provenance.tags",
    "group": "covan_mlir.provenance.groups",
    "Executable": "covan_mlir.executable",
    "CompileOptions": "covan_mlir.compilation.options",
    "Attachment": "covan_mlir.artifacts.attachment",
    "Attached": "covan_mlir.artifacts.attachment",
    "MlirFunction": "covan_mlir.artifacts.attachment",
    "Lineage": "covan_mlir.lineage",
    "Action": "covan_mlir.provenance.model",
    "Part": "covan_mlir.provenance.model",
    "Site": "covan_mlir.provenance.model",
    "Frame": "covan_mlir.provenance.model",
    "Group": "covan_mlir.provenance.model",
    "CovanError": "covan_mlir.errors",
    "ExportError": "covan_mlir.errors",
    "CompileError": "covan_mlir.errors",
    "InputError": "covan_mlir.errors",
    "DivisionError": "covan_mlir.errors",
    "OutOfRangeError": "covan_mlir.errors",
    "TagError": "covan_mlir.errors",
    "TargetError": "covan_mlir.errors",
    "DeviceError": "covan_mlir.errors",
    "ArtifactError": "covan_mlir.errors",
    "IsolationError": "covan_mlir.errors",
    "RecordsError": "covan_mlir.errors",
    "Isolation": "covan_mlir.runtime.isolation.limits",
    "ProfileError": "covan_mlir.errors",
    "Profile": "covan_mlir.profiling.profile",
    "Diagnostic": "covan_mlir.errors",
}

__all__ = ["__version__", *sorted(_PUBLIC)]

if TYPE_CHECKING:
    from covan_mlir.adaptor import Adaptive as Adaptive
    from covan_mlir.adaptor import adaptive as adaptive
    from covan_mlir.artifacts.attachment import Attached as Attached
    from covan_mlir.artifacts.attachment import Attachment as Attachment
    from covan_mlir.artifacts.attachment import MlirFunction as MlirFunction
    from covan_mlir.compilation.options import CompileOptions as CompileOptions
    from covan_mlir.compile import compile_module as compile_module
    from covan_mlir.dynamo import last_compiled as last_compiled
    from covan_mlir.errors import ArtifactError as ArtifactError
    from covan_mlir.errors import CompileError as CompileError
    from covan_mlir.errors import CovanError as CovanError
    from covan_mlir.errors import DeviceError as DeviceError
    from covan_mlir.errors import Diagnostic as Diagnostic
    from covan_mlir.errors import DivisionError as DivisionError
    from covan_mlir.errors import ExportError as ExportError
    from covan_mlir.errors import InputError as InputError
    from covan_mlir.errors import IsolationError as IsolationError
    from covan_mlir.errors import OutOfRangeError as OutOfRangeError
    from covan_mlir.errors import ProfileError as ProfileError
    from covan_mlir.errors import RecordsError as RecordsError
    from covan_mlir.errors import TagError as TagError
    from covan_mlir.errors import TargetError as TargetError
    from covan_mlir.executable import Executable as Executable
    from covan_mlir.lineage import Lineage as Lineage
    from covan_mlir.loading import load as load
    from covan_mlir.profiling.profile import Profile as Profile
    from covan_mlir.provenance.groups import group as group
    from covan_mlir.provenance.model import Action as Action
    from covan_mlir.provenance.model import Frame as Frame
    from covan_mlir.provenance.model import Group as Group
    from covan_mlir.provenance.model import Part as Part
    from covan_mlir.provenance.model import Site as Site
    from covan_mlir.provenance.tags import tag as tag
    from covan_mlir.quantizer import Quantized as Quantized
    from covan_mlir.quantizer import quantize as quantize
    from covan_mlir.runtime.isolation.limits import Isolation as Isolation
    from covan_mlir.trainer import TrainingStep as TrainingStep
    from covan_mlir.trainer import compile_training_step as compile_training_step
    from covan_mlir.tuner import tune as tune
    from covan_mlir.tuner import tune_models as tune_models
    from covan_mlir.tuning.report import Tuning as Tuning


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'covan_mlir' has no attribute {name!r}")
    with orderly(), uncollected():  # who has imported torch has a large heap, which imports would have searched
        value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
