"""How a model is quantised: what a caller may choose, checked."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal, get_args

from covan_mlir.errors import InputError

Mode = Literal["int8", "bf16", "weights-int8", "weights-int4"]
Activations = Literal["u8", "s8"]
ObserverKind = Literal["minmax", "percentile", "mse"]

NEEDED = "int8 quantisation needs the package torchao: pip install 'covan-mlir[quantize]'"


@dataclass(frozen=True)
class Scheme:
    """What becomes of a model's layers.

    Attributes:
        mode: ``int8``: weights and what they multiply; ``weights-int8``, ``weights-int4``: weights alone;
            ``bf16``: products are computed in bfloat16.
        activations: of ``int8``: steps of what weights multiply, without a sign or with one.
        observer: of ``int8``: which range of a tensor's values its steps cover.
        keep: layers that stay in float: patterns (as `fnmatch`) of module paths, which stand for all that is inside,
            or of names of actions.
        group: of ``weights-int4``: weights of a row that share a scale.
        bound_db: signal-to-noise ratio in dB that tensors are expected to have.
        target: what the model is for, as `covan_mlir.compile_module` takes it.
    """

    mode: Mode = "int8"
    activations: Activations = "u8"
    observer: ObserverKind = "minmax"
    keep: tuple[str, ...] = ()
    group: int = 128
    bound_db: float = 20.0
    target: str = "cpu"

    def __post_init__(self) -> None:
        for name, kinds in (("mode", Mode), ("activations", Activations), ("observer", ObserverKind)):
            if (value := getattr(self, name)) not in get_args(kinds):
                raise InputError(f"{name}={value!r}: give one of {', '.join(map(repr, get_args(kinds)))}")
        if not isinstance(self.keep, tuple) or not all(isinstance(pattern, str) for pattern in self.keep):
            raise InputError(f"keep={self.keep!r}: give a tuple of module paths, such as ('head', 'blocks.0.*')")
        if not isinstance(self.group, int) or self.group < 2:
            raise InputError(f"group={self.group!r}: give a number of weights, two at least")


def installed() -> bool:
    """Whether what int8 quantisation needs is there."""
    return importlib.util.find_spec("torchao") is not None
