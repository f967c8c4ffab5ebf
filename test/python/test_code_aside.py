"""Bodies of kernels are put aside while IREE schedules the program, and put back where they were."""

from __future__ import annotations

import iree.compiler.ir as ir
from iree.compiler.api import Session

from covan_mlir.lowering.kernels.code_aside import put_aside, put_back

LAYOUT = "#hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer>]>"


def executable(name: str, number: float) -> str:
    return f"""
hal.executable.source private @{name} {{
  hal.executable.export public @{name} ordinal(0) layout({LAYOUT}) count(%d: !hal.device) -> (index, index, index) {{
    %n = arith.constant 1 : index
    hal.return %n, %n, %n : index, index, index
  }}
  builtin.module {{
    func.func @{name}() {{
      %c = arith.constant {number} : f32
      return
    }}
  }}
}}"""


def test_bodies_come_back_to_the_kernels_that_are_left() -> None:
    session = Session()
    with session.context, ir.Location.unknown():
        module = ir.Module.parse(executable("first", 1.0) + executable("second", 2.0) + executable("third", 3.0))
        before = str(module)
        bodies = put_aside(module)
        assert module.operation.verify()
        assert "arith.constant 1 : index" in str(module)
        assert "f32" not in str(module)
        assert len({source.operation.get_asm().split(" ", 3)[3] for source in module.body.operations}) == 3
        list(module.body.operations)[1].operation.erase()
        put_back(module, bodies)
        assert module.operation.verify()
        assert not bodies
        left = str(ir.Module.parse(executable("first", 1.0) + executable("third", 3.0)))
        assert str(module) == left != before
