"""Weights that stay outside the program become globals that the runtime fills from named parameters.

They arrive as trailing arguments of ``@main``. As globals, IREE can still hoist and pack what is computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import iree.compiler.ir as ir

from covan_mlir.artifacts.signature import PARAMETER_SCOPE
from covan_mlir.lowering.pipeline import PipelineState, Run


def externalize(names: Sequence[str]) -> Run:
    """The step that binds the last ``len(names)`` arguments of ``@main`` to parameters of those names.

    Before::

        func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {...}

    After::

        util.global private @weight.0 = #flow.parameter.named<"covan"::"fc.weight"> : tensor<4x4xf32>
        func.func private @main.body(...) {...}
        func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
          %w = util.global.load @weight.0 : tensor<4x4xf32>
          %r = call @main.body(%x, %w) : ...
          return %r
        }
    """

    def run(state: PipelineState) -> None:
        with state.session.context, ir.Location.unknown():
            body = state.module.body
            main = next(op for op in body.operations if op.attributes["sym_name"].value == "main")
            kind = ir.FunctionType(main.attributes["function_type"].value)
            split = len(kind.inputs) - len(names)
            text = _wrapper(
                [str(t) for t in kind.inputs[:split]],
                [str(t) for t in kind.inputs[split:]],
                [str(t) for t in kind.results],
                names,
            )
            main.attributes["sym_name"] = ir.StringAttr.get("main.body")
            main.attributes["sym_visibility"] = ir.StringAttr.get("private")
            wrapper = ir.Module.parse(f"{text}\nfunc.func private @main.body{_signature(kind)}")
            for op in list(wrapper.body.operations):
                if op.attributes["sym_name"].value != "main.body":
                    op.detach_from_parent()
                    body.append(op)

    return run


def _signature(kind: ir.FunctionType) -> str:
    return f"({', '.join(map(str, kind.inputs))}) -> ({', '.join(map(str, kind.results))})"


def _wrapper(inputs: Sequence[str], weights: Sequence[str], results: Sequence[str], names: Sequence[str]) -> str:
    lines = [
        f"util.global private @weight.{i} = "
        f'#flow.parameter.named<"{PARAMETER_SCOPE}"::{ir.StringAttr.get(name)}> : {kind}'
        for i, (name, kind) in enumerate(zip(names, weights, strict=True))
    ]
    parameters = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(inputs))
    lines.append(f"func.func @main({parameters}) -> ({', '.join(results)}) {{")
    lines += [f"  %w{i} = util.global.load @weight.{i} : {kind}" for i, kind in enumerate(weights)]
    operands = ", ".join([f"%a{i}" for i in range(len(inputs))] + [f"%w{i}" for i in range(len(weights))])
    kinds = f"({', '.join([*inputs, *weights])}) -> ({', '.join(results)})"
    bound = f"%r:{len(results)} = " if results else ""
    lines.append(f"  {bound}func.call @main.body({operands}) : {kinds}")
    values = ", ".join(f"%r#{i}" for i in range(len(results)))
    lines.append(f"  return {values} : {', '.join(results)}" if results else "  return")
    return "\n".join([*lines, "}"])
