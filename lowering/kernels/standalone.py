"""A kernel on its own, as a program: for tests, benchmarks and a tuner."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import iree.compiler.ir as ir
import numpy as np
from iree.compiler.api import Session

from covan_mlir.lowering import iree_phases
from covan_mlir.lowering.kernels.cpu.machine_code import MachineCode
from covan_mlir.lowering.kernels.cpu.team import share
from covan_mlir.lowering.kernels.kernel import Executable, Operand
from covan_mlir.lowering.kernels.kernel_code import KernelCode
from covan_mlir.lowering.targets import Target, parse
from covan_mlir.runtime import team

_ALIAS = re.compile(r"^#(\w+) = ", re.M)


def program(kernels: Sequence[Executable], devices: str = "") -> str:
    """A module with one function per kernel, called as the kernel is, that only dispatches it: ``NAME_main``. What the
    kernel reads prepared are further arguments of it, which ``NAME_prepare`` gives from the call's.

    Args:
        devices: the element of ``hal.device.targets``; empty: flags say it all.
    """
    aliases, bodies = [], []
    for kernel in kernels:
        # Names of attributes are the module's: each kernel's own, there.
        text = re.sub(rf"#({'|'.join(_ALIAS.findall(kernel.text)) or '-'})\b", rf"#\1_{kernel.name}_", kernel.text)
        head, _, rest = text.partition("module {\n")
        aliases.append(head)
        bodies.append(rest.rstrip().removesuffix("}") + _call(kernel) + _prepare(kernel))
    attributes = f" attributes {{hal.device.targets = [{devices}]}}" if devices else ""
    return "".join(aliases) + f"module @alone{attributes} {{\n" + "".join(bodies) + "}\n"


def _call(kernel: Executable) -> str:
    given = (*kernel.inputs, *(preparation.operand for preparation in kernel.preparations))
    values = {operand.name: f"%a{n}" for n, operand in enumerate(given)}
    arguments = ", ".join(f"{values[operand.name]}: {operand.tensor}" for operand in given)
    lines = []
    for axis in kernel.sizes:
        operand = next(operand for operand in kernel.inputs if axis in operand.extents)
        dimension = [n for n, size in enumerate(operand.shape) if size < 0][operand.extents.index(axis)]
        lines.append(f"    %c_{axis} = arith.constant {dimension} : index\n")
        lines.append(f"    %n_{axis} = tensor.dim {values[operand.name]}, %c_{axis} : {operand.tensor}\n")
        lines.append(f"    %i_{axis} = arith.index_castui %n_{axis} : index to i32\n")
    workload = f"[{', '.join(f'%n_{axis}' for axis in kernel.sizes)}]" if kernel.sizes else ""
    numbers = [f"%i_{a}" for a in kernel.sizes]
    for n, step in enumerate(kernel.dispatches):
        count = len(step.outputs)
        names = ", ".join([*(values[operand.name] for operand in step.inputs), *numbers])
        types = ", ".join([*map(_shaped, step.inputs), *("i32" for _ in numbers)])
        results = ", ".join(map(_shaped, step.outputs))
        lines.append(
            f"    %r{n}{f':{count}' if count > 1 else ''} = flow.dispatch @{step.name}::@{step.name}{workload}({names})"
            f" : ({types}) -> {f'({results})' if count > 1 else results}\n"
        )
        for k, operand in enumerate(step.outputs):
            values[operand.name] = f"%r{n}#{k}" if count > 1 else f"%r{n}"
    returned = ", ".join(values[operand.name] for operand in kernel.outputs)
    results = ", ".join(operand.tensor for operand in kernel.outputs)
    return (
        f"  func.func @{kernel.name}_main({arguments}) -> ({results}) {{\n{''.join(lines)}"
        f"    return {returned} : {results}\n  }}\n"
    )


def _prepare(kernel: Executable) -> str:
    """The function that prepares operands, if there are any; what it calls has a name of its own for each."""
    if not kernel.preparations:
        return ""
    values = {operand.name: f"%a{n}" for n, operand in enumerate(kernel.inputs)}
    kinds = {operand.name: operand.tensor for operand in kernel.inputs}
    arguments = ", ".join(f"{values[name]}: {kind}" for name, kind in kinds.items())
    functions, lines = [], []
    for n, preparation in enumerate(kernel.preparations):
        name = f"{kernel.name}_prepare{n}"
        functions.append(re.sub(r"@\w+", f"@{name}", preparation.text, count=1))
        operands = ", ".join(values[source] for source in preparation.sources)
        types = ", ".join(kinds[source] for source in preparation.sources)
        lines.append(f"    %p{n} = func.call @{name}({operands}) : ({types}) -> {preparation.operand.tensor}\n")
    results = ", ".join(preparation.operand.tensor for preparation in kernel.preparations)
    returned = ", ".join(f"%p{n}" for n in range(len(kernel.preparations)))
    functions.append(
        f"  func.func @{kernel.name}_prepare({arguments}) -> ({results}) {{\n{''.join(lines)}"
        f"    return {returned} : {results}\n  }}\n"
    )
    return "\n".join(functions)


def _shaped(operand: Operand) -> str:
    sizes = ", ".join(f"%n_{axis}" for axis in operand.extents)
    return f"{operand.tensor}{{{sizes}}}" if sizes else operand.tensor


def compile_text(text: str, extra: Sequence[str] = (), target: Sequence[str] | None = None) -> bytes:
    """A module as a program for IREE's virtual machine.

    Raises:
        StepError, MLIRError: the compiler refused it.
    """
    return _compiled(text, (*(_flags(None) if target is None else target), *extra), KernelCode(None), ())


def compile_kernels(kernels: Sequence[Executable], target: Target | None = None, *, beside: bool = True) -> bytes:
    """Kernels as a program for IREE's virtual machine, by `program`; each compiled as in the programs of users.

    Args:
        target: what they are for; None: this machine's CPU.
        beside: whether on all cores.

    Raises:
        StepError, MLIRError: the compiler refused it.
    """
    flags = _flags(target)
    on_cpu = target is None or target.kind == "cpu"
    code = KernelCode(MachineCode(flags, "", beside=beside) if on_cpu else None)
    try:
        return _compiled(program(kernels, target.devices if target else ""), flags, code, kernels)
    finally:
        code.close()


def _flags(target: Target | None) -> tuple[str, ...]:
    return tuple(parse("cpu").compiler_flags(double=True) if target is None else target.compiler_flags(double=False))


def _compiled(text: str, flags: Sequence[str], code: KernelCode, kernels: Sequence[Executable]) -> bytes:
    """By the steps of programs that kernels need (`covan_mlir.lowering.sequence`)."""
    code.begin(kernels)
    session = Session()
    session.set_flags(*flags)
    with session.context, ir.Location.unknown():
        module = ir.Module.parse(text)
        code.put_aside(module)
    iree_phases.execute(session, module, "start", "stream")
    with session.context:
        code.restore(module)
    iree_phases.execute(session, module, "stream", "executable-targets")
    with session.context:
        code.link(module)
        share(module)
    return iree_phases.execute(session, module, "executable-targets", "end")


class Standalone:
    """Kernels, loaded; a call takes and gives device buffers.

    Args:
        driver: ``local-task`` (all cores), ``local-sync`` (the calling thread), ``openmp`` (the calling thread and
            the process's OpenMP threads), or another one.
        target: what the kernels are compiled for; None: this machine's CPU.
    """

    def __init__(
        self,
        kernels: Sequence[Executable],
        driver: str = "local-task",
        code: bytes | None = None,
        target: Target | None = None,
    ) -> None:
        import iree.runtime as rt

        if code is None:
            code = compile_kernels(kernels, target)

        self._rt = rt
        self._config = rt.Config(team.hal(driver))
        module = rt.VmModule.copy_buffer(self._config.vm_instance, code)
        self._context = rt.VmContext(self._config.vm_instance, [*self._config.default_vm_modules, module])
        self._module = module
        self._prepared = {kernel.name: len(kernel.preparations) for kernel in kernels}
        self.device = self._config.device
        if driver == team.DRIVER:
            team.share(self._context, module)

    def buffer(self, array: np.ndarray[Any, Any]) -> Any:
        """An array on the device."""
        return self._rt.asdevicearray(self.device, np.ascontiguousarray(array))

    def __getitem__(self, name: str) -> Callable[..., Any]:
        main = self.function(f"{name}_main")
        return lambda *buffers: main(*buffers, *self._prepare(name, buffers))

    def function(self, symbol: str) -> Callable[..., Any]:
        """A function of the program."""
        function = self._module.lookup_function(symbol)
        invoker: Callable[..., Any] = self._rt.FunctionInvoker(self._context, self.device, function)
        return invoker

    def _prepare(self, name: str, buffers: Sequence[Any]) -> Sequence[Any]:
        """What a kernel reads prepared of what its call is given."""
        if not (count := self._prepared.get(name, 0)):
            return ()
        values = self.function(f"{name}_prepare")(*buffers)
        return (values,) if count == 1 else tuple(values)

    def bound(self, name: str, *buffers: Any) -> Callable[[], Any]:
        """A kernel with its operands, for timing: the call alone, without the packing of arguments in Python and
        without what is prepared, once, here.

        Args:
            buffers: what `buffer` gives, or views of memory that somebody else owns (`covan_mlir.runtime.values`).
        """
        function = self._module.lookup_function(f"{name}_main")
        prepared = self._prepare(name, buffers)
        arguments = self._rt.VmVariantList(len(buffers) + len(prepared))
        for buffer in (*buffers, *prepared):
            arguments.push_ref(getattr(buffer, "_buffer_view", buffer))

        def call() -> Any:
            results = self._rt.VmVariantList(1)
            self._context.invoke(function, arguments, results)
            return results

        return call
