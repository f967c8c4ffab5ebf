"""What kernels compute, put aside while IREE schedules the program that dispatches them.

All that IREE does to a program before it generates code walks through everything that is nested in it, and again and
again: kernels, with hundreds of vector operations each, would be most of that. None of it needs to know more of a
kernel than its export says.
"""

from __future__ import annotations

from typing import Any

SOURCE = "hal.executable.source"
_NAME = "covan.kernel_body"
"""Attribute of what stands for a body: it keeps IREE from taking two kernels for one."""


def put_aside(module: Any) -> dict[str, Any]:
    """Takes the bodies out of the executables in a module of IREE's, in whose context the caller is.

    Before::

        hal.executable.source private @kernel {
          hal.executable.export public @kernel ...
          builtin.module {
            func.func @kernel() {...}
          }
        }

    After::

        hal.executable.source private @kernel {
          hal.executable.export public @kernel ...
          builtin.module attributes {covan.kernel_body = "kernel"} {
          }
        }

    Returns:
        The bodies, by what stands for them.
    """
    import iree.compiler.ir as ir

    bodies: dict[str, Any] = {}
    for source in _sources(module):
        name = ir.StringAttr(source.attributes["sym_name"]).value
        block = source.regions[0].blocks[0]
        for body in [view.operation for view in block if view.operation.name == "builtin.module"]:
            attributes = {_NAME: ir.StringAttr.get(name)}
            with ir.Location.unknown(), ir.InsertionPoint(body):
                ir.Operation.create("builtin.module", attributes=attributes, regions=1).regions[0].blocks.append()
            body.detach_from_parent()
            bodies[name] = body
    return bodies


def put_back(module: Any, bodies: dict[str, Any]) -> None:
    """Puts bodies where `put_aside` took them from; those of kernels that nobody dispatches any more are dropped."""
    import iree.compiler.ir as ir

    for source in _sources(module):
        block = source.regions[0].blocks[0]
        for place in [view.operation for view in block if _NAME in view.operation.attributes]:
            ir.InsertionPoint(place).insert(bodies.pop(ir.StringAttr(place.attributes[_NAME]).value))
            place.erase()
    bodies.clear()


def _sources(module: Any) -> list[Any]:
    return [view.operation for view in module.body.operations if view.operation.name == SOURCE]
