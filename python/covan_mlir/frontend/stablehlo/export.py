"""A StableHLO module as an exported program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.lifted import lift_constants
from covan_mlir.frontend.sources import remember
from covan_mlir.frontend.stablehlo.module import StableHloModule
from covan_mlir.frontend.stablehlo.reading import Loaded
from covan_mlir.frontend.stablehlo.unsupported import check_supported
from covan_mlir.frontend.translation.tracing import exported, quiet


@dataclass(frozen=True)
class Interface:
    """How a module is called.

    Attributes:
        args, kwargs: example arguments, any pytree of torch's tensors.
        flat: of (args, kwargs), those that the module takes, in its order.
        built: of the module's results, what is given back.
        shapes: as `torch.export.export` takes it for (args, kwargs); None: all sizes are as they are.
        names: of positional-or-keyword parameters.
        signature: of parameters, each with one argument; None: there may be any number.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    flat: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]
    built: Callable[[Sequence[Any]], Any]
    shapes: Any = None
    names: tuple[str, ...] = ()
    signature: inspect.Signature | None = None


class _Called(torch.nn.Module):
    def __init__(self, inner: StableHloModule, interface: Interface) -> None:
        super().__init__()
        self.inner = inner
        flat, built = interface.flat, interface.built

        def forward(*args: Any, **kwargs: Any) -> Any:
            return built(self.inner(*flat(args, kwargs)))

        if interface.signature is not None:
            forward.__signature__ = interface.signature  # type: ignore[attr-defined]  # what inspect asks for
        self.forward = forward


def capture(
    loaded: Loaded, interface: Interface, reference: Callable[[Sequence[Any]], list[torch.Tensor | None]] | None
) -> Capture:
    """Translate a module, and export it.

    Raises:
        ExportError: operations of it have no translation: all are told of.
    """
    check_supported(loaded)
    module = StableHloModule(loaded)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    fake = [mode.from_tensor(given) for given in interface.flat(interface.args, interface.kwargs)]
    with mode, torch.no_grad(), quiet():
        module(*fake)  # tells which operations there are, and which constants they compute with
    module.hold(list(module.used))
    module.marks = True
    called = _Called(module, interface)
    program = lift_constants(exported(called, interface.args, interface.kwargs, interface.shapes))
    remember(program.graph, module.ledger.source_nodes())
    return Capture(program, None, interface.names, reference=reference)
