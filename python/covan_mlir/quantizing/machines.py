"""How a target multiplies steps of 8 bits: what decides which layers there is something to win of, and what a report
tells.

``python -m covan_mlir.quantizing.machines TARGET`` prints it as JSON: LLVM ends the process on a CPU that it does not
know, so those with names are looked up in another one.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import msgspec

from covan_mlir.errors import TargetError
from covan_mlir.lowering.targets import parse
from covan_mlir.support.processes import leash

_LANES = 16
"""Words of a vector, of machines that multiply none: a model may be quantised elsewhere than it is to run."""

_LIMIT = 60.0
"""Seconds."""


class Multiplied(msgspec.Struct, frozen=True):
    """How it does.

    Attributes:
        target: as `covan_mlir.compile_module` takes it.
        by: instructions; empty: steps become floats, which are multiplied.
        lanes: words of a vector.
    """

    target: str = "cpu"
    by: tuple[str, ...] = ()
    lanes: int = _LANES

    @staticmethod
    def on(target: str) -> Multiplied:
        """On a target; nothing is measured.

        Raises:
            TargetError: there is none of this name.
        """
        return _known(target) if target == "cpu" or parse(target).kind != "cpu" else _asked(target)

    def __str__(self) -> str:
        if self.by:
            return f"on {self.target}, steps are multiplied by {' and '.join(self.by)}"
        return f"on {self.target}, steps are multiplied as floats: no kernel multiplies integers of 8 bits there"


def _known(target: str) -> Multiplied:
    from covan_mlir.lowering.kernels import targets
    from covan_mlir.lowering.kernels.cpu.target import CpuTarget
    from covan_mlir.lowering.kernels.cpu.words import integer_words
    from covan_mlir.machine.host import host

    if target == "cpu":
        machine = host(measure=False)
    else:
        known = targets.of(target)
        if not isinstance(known, CpuTarget):
            return Multiplied(target)
        machine = known.machine
    by = tuple(dict.fromkeys(words.instruction for words in integer_words(machine)))
    return Multiplied(target, by, machine.lanes("f32") if by else _LANES)


@lru_cache(64)
def _asked(target: str) -> Multiplied:
    done = leash.run([sys.executable, "-P", "-m", __name__, target], _LIMIT, session=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise TargetError(f"{target}: {lines[0] if lines else 'the compiler does not know it'}")
    return msgspec.json.decode(done.stdout, type=Multiplied)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_known(sys.argv[1])))
