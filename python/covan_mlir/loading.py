"""`load`: an executable from a ``.covan`` file. Needs numpy, msgspec and the IREE runtime only."""

from __future__ import annotations

import os

from covan_mlir.executable import Executable
from covan_mlir.runtime.loading import read, refusing


def load(path: str | os.PathLike[str]) -> Executable:
    """Load an artifact that `Executable.save` wrote.

    Raises:
        ArtifactError: the file is damaged, foreign, from a newer version, or contradicts itself; nothing was changed.
        DeviceError: it has no program for a device of this machine; says for which targets it has.
    """
    compiled = read(path)
    with refusing(path):
        exe = Executable(compiled)
    exe.check_device()
    return exe
