"""Tracing of translations."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta

from covan_mlir.errors import CovanError, ExportError
from covan_mlir.frontend.translation.refused import first_line


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's own account of shapes that contradict each other, of which the error tells."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def exported(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> ExportedProgram:
    """What torch traces while a module runs a graph of another framework.

    Args:
        shapes: which sizes stay open, as `torch.export.export` takes it.

    Raises:
        ExportError: it cannot be traced; what a translation refuses is told in its own words.
    """
    with preserve_node_meta(), torch.no_grad(), quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own classes
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        except CovanError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, CovanError):
                raise error.__cause__ from None
            raise ExportError(f"the model does not export: {type(error).__name__}: {first_line(error)}") from error
