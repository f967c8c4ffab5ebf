"""`load`: an executable from a ``.covan`` file. Needs numpy, msgspec and the IREE runtime only."""

from __future__ import annotations

import os

from covan_mlir.artifacts import signing
from covan_mlir.executable import Executable
from covan_mlir.runtime.isolation.limits import Isolation
from covan_mlir.runtime.loading import read, refusing
from covan_mlir.support.interrupts import orderly


@orderly()
def load(
    path: str | os.PathLike[str],
    *,
    isolated: bool | Isolation = False,
    key: str | os.PathLike[str] | None = None,
) -> Executable:
    """Load an artifact that `Executable.save` wrote. Its program is machine code: without ``isolated`` it does what it
    likes with the rights of this process (docs/security.md).

    Args:
        isolated: the program runs in a process of its own: when it crashes, hangs or fills the memory there, a call
            raises `IsolationError` here. With limits other than those of `Isolation()`, these.
        key: a file with a public key: nothing of the artifact is read unless ``<path>.sig`` is its signature by that
            key (`covan sign`). Needs ``cryptography``.

    Raises:
        ArtifactError: the file is damaged, foreign, from a newer version, or contradicts itself; it is not signed by
            the key. Nothing was changed.
        DeviceError: it has no program for a device of this machine; says for which targets it has.
        IsolationError: the program's process died, or took more time or memory than it may.
    """
    limits = Isolation() if isolated is True else isolated or None
    if key is None:
        compiled = read(path, limits)
    else:
        signer = signing.public_key(key)
        compiled = read(path, limits, lambda file: signing.check(path, file, signer))
    with refusing(path):
        exe = Executable(compiled)
    exe.check_device()
    return exe
