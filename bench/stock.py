"""The stock path, the baseline for covan: torch-mlir's importer, iree-compile, iree.runtime.

Nothing here imports covan. The compiler's target is the one covan names, and its optimizer is left at IREE's defaults,
so that the difference is covan's doing. Run alone (`python bench/stock.py`), it compiles the small workloads and says
which ones can pass.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from iree import runtime
from iree.compiler import tools
from torch import Tensor, nn
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.utils import _pytree as pytree
from torch_mlir import fx

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    # On by default, and then f64 results come back as f32 bytes.
    "--iree-input-demote-f64-to-f32=false",
)


class StockFailure(Exception):
    """The stock path cannot handle a model.

    Attributes:
        stage: ``export``, ``import``, ``compile`` or ``run``.
    """

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(f"{stage}: {common.short(cause)}")
        self.stage = stage


def attempt(stage: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # whatever the stage raises is the finding
        raise StockFailure(stage, error) from error


class StockProgram:
    """A model compiled by the stock path; called like the model."""

    def __init__(self, program: torch.export.ExportedProgram, vmfb: bytes, driver: str = "local-task") -> None:
        self.vmfb = vmfb
        self.raw = RawProgram(vmfb, driver)
        specs = program.graph_signature.output_specs
        self._outputs = [s for s in specs if s.kind == OutputKind.USER_OUTPUT]
        self._extra = len(specs) - len(self._outputs)  # mutated buffers come first
        self._spec = program.call_spec.out_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        results = iter(self.raw.invoke(self.raw.arguments(args, kwargs))[self._extra :])
        leaves: list[Any] = []
        for spec in self._outputs:
            if isinstance(spec.arg, TensorArgument):
                leaves.append(next(results))
            else:
                leaves.append(getattr(spec.arg, "value", None))
        assert self._spec is not None
        return pytree.tree_unflatten(leaves, self._spec)


class RawProgram:
    """A compiled program under the thinnest wrapping that the runtime bindings offer: `VmContext.invoke`."""

    def __init__(
        self,
        vmfb: bytes | memoryview,
        driver: str = "local-task",
        entry: str = "main",
        scope: str = "",
        weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
        shared: tuple[Any, Any] | None = None,
    ) -> None:
        """Load a program.

        Args:
            weights: bytes of the parameters that the program reads from outside, under `scope`.
            shared: VM instance and device to use; else new ones.
        """
        if shared:
            instance, self.device = shared
        else:
            config = runtime.Config(driver)
            instance, self.device = config.vm_instance, config.device
        modules = [runtime.create_hal_module(instance, self.device)]
        if weights:
            index = runtime.ParameterIndex()
            for name, data in weights.items():
                index.add_buffer(name, data)
            provider = index.create_provider(scope=scope)
            modules.append(runtime.create_io_parameters_module(instance, provider))
        module = runtime.VmModule.copy_buffer(instance, vmfb)
        self.context = runtime.VmContext(instance, [*modules, module])
        self.function = module.lookup_function(entry)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> runtime.VmVariantList:
        """Inputs as the program takes them: the tensor leaves, in order, as buffer views."""
        tensors = [x for x in pytree.tree_leaves((args, dict(kwargs))) if isinstance(x, Tensor)]
        inputs = runtime.VmVariantList(len(tensors))
        for tensor in tensors:
            inputs.push_ref(self.view(tensor))
        return inputs

    def view(self, tensor: Tensor) -> runtime.HalBufferView:
        array = tensor.detach().contiguous().numpy()
        return self.device.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
            device=self.device,
            buffer=np.ascontiguousarray(array).reshape(array.shape),
            element_type=runtime.array_interop.map_dtype_to_element_type(array.dtype),
        )

    def run(self, inputs: runtime.VmVariantList) -> runtime.VmVariantList:
        """One bare invocation; results stay on the device."""
        results = runtime.VmVariantList(4)
        self.context.invoke(self.function, inputs, results)
        return results

    def invoke(self, inputs: runtime.VmVariantList) -> list[Tensor]:
        """One invocation, results as torch tensors that share the device's memory."""
        results = self.run(inputs)
        tensors = []
        for i in range(len(results)):
            view = results.get_as_object(i, runtime.HalBufferView)
            tensors.append(torch.from_numpy(runtime.DeviceArray(self.device, view).to_host()))
        return tensors


def compile_stock(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> StockProgram:
    """Export, import, compile and load a model.

    Raises:
        StockFailure: naming the stage that gave up and why.
    """
    program = attempt("export", lambda: torch.export.export(model, args, dict(kwargs or {}), strict=False))
    module = attempt("import", lambda: fx.export_and_import(program, output_type="linalg-on-tensors"))
    with tempfile.TemporaryDirectory() as folder:
        # Bytecode, because printing the weights as text would take longer than compiling them.
        path = Path(folder) / "model.mlirbc"
        with path.open("wb") as file:
            module.operation.write_bytecode(file)
        del module
        vmfb = attempt("compile", lambda: tools.compile_file(str(path), extra_args=list(FLAGS)))
    loaded: StockProgram = attempt("run", lambda: StockProgram(program, vmfb))
    return loaded


def main() -> None:
    from workloads import GROUPS, build

    parser = argparse.ArgumentParser(description="Which workloads can the stock path handle?")
    parser.add_argument("models", nargs="*", default=[])
    for name in parser.parse_args().models or GROUPS["small"]:
        model, args, kwargs = build(name)
        with torch.no_grad():
            try:
                program, seconds = common.once(partial(compile_stock, model, args, kwargs))
                actual = attempt("run", partial(program, *args, **kwargs))
            except StockFailure as failure:
                print(f"{name:18} fails in {failure}")
                continue
            expected = model(*args, **kwargs)
        pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
        error = max(float((a - e).abs().max()) for a, e in pairs if isinstance(e, Tensor))
        print(f"{name:18} compiles in {seconds:.1f} s, max error {error:.2g}")


if __name__ == "__main__":
    main()
