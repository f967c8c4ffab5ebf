"""Files of the user's own: they define passes, or register templates of kernels."""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from covan_mlir.passes.framework import registry
from covan_mlir.support import whole_file


class ExtensionError(Exception):
    """A file cannot be loaded; says which and why."""


def load(path: str) -> None:
    """Runs a Python file and registers every pass that it defines. What else it defines, it registers itself.

    Raises:
        ExtensionError: it is no Python file, or it raised something.
    """
    try:
        whole_file.check(path)
        place = os.path.realpath(path)  # a folder on the way may be closed to us
    except OSError as error:
        raise ExtensionError(f"cannot load '{path}': {error.strerror}") from None
    name = f"covan_extension_{Path(path).stem}_{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ExtensionError(f"cannot load '{path}': not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    # Whatever a user's file raises is the user's error and not this program's.
    except Exception as error:
        raise ExtensionError(f"cannot load '{path}': {type(error).__name__}: {error}") from error
    for value in list(vars(module).values()):
        if registry.is_pass(value) and value.__module__ == name:
            registry.register(value)
