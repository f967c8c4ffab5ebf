"""What an executable was compiled from, so that it can be compiled again with something else to look at."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.compilation.options import CompileOptions
from covan_mlir.frontend.capture import Capture


@dataclass(frozen=True)
class Origin:
    """The exported model, whose tensors are the model's own, and the options of the compilation.

    Attributes:
        versions: of each version for some sizes, in the order of the program's.
    """

    captured: Capture
    options: CompileOptions
    versions: tuple[Origin, ...] = ()
