"""covan's own dialects, loaded into a torch_mlir context.

Importing this package is free of MLIR: the bindings are imported by ``load``.
``prov_table`` and ``prov_locations`` can therefore be used where only IREE is
installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from covan_mlir.support.interrupts import orderly

if TYPE_CHECKING:
    from torch_mlir import ir

# (module of this package, class of the dialect), in loading order. A new dialect is one line here.
DIALECTS: tuple[tuple[str, str], ...] = (("prov", "ProvDialect"), ("fred", "FredDialect"), ("kir", "KirDialect"))


def dialect_classes() -> tuple[Any, ...]:
    """The ``ext.Dialect`` subclasses of covan, in loading order."""
    return tuple(getattr(import_module(f"{__name__}.{module}"), name) for module, name in DIALECTS)


@orderly(whole=True)  # what is registered by half cannot be registered again
def load(context: "ir.Context") -> None:
    """Register torch-mlir's dialects and load covan's into ``context``.

    Calling it again for the same context does nothing.
    """
    from torch_mlir import ir

    # The C++ registration alone: the 70 ms of Python op classes are imported by the bindings themselves when
    # somebody first asks for a view of a torch op.
    from torch_mlir._mlir_libs._torchMlir import register_dialect
    from torch_mlir.dialects._ods_common import _cext
    from torch_mlir.passmanager import PassManager

    # Where the bindings look for the Python views of a dialect's ops. They look for ours in vain otherwise, on disk
    # and again for every view that they make: 50 us each.
    if __name__ not in _cext.globals.dialect_search_modules:
        _cext.globals.append_dialect_search_prefix(__name__)
    if not context.is_dialect_loaded("torch"):
        register_dialect(context)
        # The bindings register `torch` only. `torch_c` and `tm_tensor`, which lowering it makes, are loaded by the
        # passes that make them; without this, IR printed after these could not be parsed again.
        passes = "torch-func-backend-type-conversion,func.func(convert-torch-to-tmtensor)"
        empty = ir.Module.create(ir.Location.unknown(context))
        PassManager.parse(f"builtin.module({passes})", context).run(empty.operation)
    with context, ir.Location.unknown(context):
        for dialect in dialect_classes():
            if not context.is_dialect_loaded(dialect.DIALECT_NAMESPACE):
                dialect.load()


def irdl_text() -> str:
    """The definitions of covan's dialects as one IRDL module, as ``mlir-opt --irdl-file`` reads it.

    IRDL states operands, results, regions and the kinds of attributes; what the
    Python verifiers check beyond that is not part of it.
    """
    from torch_mlir import ir

    with ir.Context() as context, ir.Location.unknown(context):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            for dialect in dialect_classes():
                dialect._emit_dialect()
        return str(module)
