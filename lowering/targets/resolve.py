"""What IREE makes of the flags for a CPU: its instructions, vectors and triple."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.api import Session

from covan_mlir.lowering.iree_phases import execute
from covan_mlir.lowering.pipeline import StepError
from covan_mlir.lowering.targets.cpu import ARCHITECTURES
from covan_mlir.runtime.requirements import instructions

# IREE assigns targets to devices that something runs on.
_PROBE = """
func.func @probe(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


@dataclass(frozen=True)
class ExecutableTarget:
    """A CPU as the compiler sees it.

    Attributes:
        cpu: LLVM's name of it, or empty.
        triple: LLVM's.
        features: ``+avx2`` and so on, in LLVM's words.
        vector_bytes: width of a vector register.
    """

    cpu: str
    triple: str
    features: tuple[str, ...]
    vector_bytes: int

    @property
    def architecture(self) -> str:
        """As Python's `platform.machine` spells it."""
        first = self.triple.partition("-")[0]
        return ARCHITECTURES.get(first, first)

    def requires(self) -> dict[str, Any]:
        """What a machine must have to run the code, see `covan_mlir.runtime.requirements`."""
        return {"architecture": self.architecture, "features": instructions(self.features)}


@lru_cache(64)
def target_attribute(flags: tuple[str, ...]) -> str:
    """The ``#hal.executable.target`` of the CPU that flags of the compiler name.

    Raises:
        StepError: LLVM knows no such CPU or triple, or a flag is wrong.
    """
    session = Session()
    try:
        session.set_flags(*flags)
    except ValueError as error:
        raise StepError("the IREE compiler refuses a flag: " + " ".join(str(error).split())) from error
    with session.context, ir.Location.unknown():
        module = ir.Module.parse(_PROBE)
        execute(session, module, "start", "executable-sources")
        # The bindings have no class for this attribute; as an alias it stands on a line of its own.
        attribute = re.search(r"^#\w+ = (#hal\.executable\.target<.*>)$", str(module), re.M)
    if attribute is None:
        raise StepError("the IREE compiler names no target for what it compiles with these flags")
    return attribute[1]


def executable_target(flags: tuple[str, ...]) -> ExecutableTarget:
    """The CPU that flags of the compiler name.

    Raises:
        StepError: LLVM knows no such CPU or triple, or a flag is wrong.
    """
    text = target_attribute(flags)
    attributes = {
        key: (re.search(rf'\b{key} = "?([^",}}:]*)', text) or ["", ""])[1].strip()
        for key in ("cpu", "target_triple", "native_vector_size")
    }
    features = re.search(r'\bcpu_features = "([^"]*)"', text)
    return ExecutableTarget(
        attributes["cpu"],
        attributes["target_triple"],
        tuple(features[1].split(",")) if features else (),
        int(attributes["native_vector_size"] or 16),
    )
