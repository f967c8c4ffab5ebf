"""Generated source to PTX, ahead of time: neither a GPU nor a driver is needed, only the optional extra ``cuda``."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.cuda.kernel import Binary, CudaKernel, Launch
from covan_mlir.lowering.kernels.cuda.lines import flattened
from covan_mlir.lowering.kernels.cuda.run import function
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.targets.cuda import PTX
from covan_mlir.support.processes import leash

_TYPES = {
    "f16": "*fp16", "bf16": "*bf16", "f32": "*fp32", "f64": "*fp64", "i64": "*i64", "i32": "*i32", "i16": "*i16",
    "i8": "*i8", "i1": "*i8",
}  # fmt: skip
ALIGNMENT = 16
"""Bytes that operands are aligned to, so that 128 bits are read at once."""

_lock = threading.Lock()


class NoTritonError(ImportError):
    """Triton is not installed."""


def available() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def compile_kernel(kernel: CudaKernel) -> tuple[Binary, ...]:
    """PTX of every launch. Line tables name lines of its source (`covan_mlir.lowering.kernels.cuda.lines`).

    Raises:
        NoTritonError: the extra is not installed.
        UnsupportedError: Triton refuses the source, or a launch needs more shared memory than there is.
    """
    return tuple(compile_launch(launch, kernel.device) for launch in kernel.launches)


def compile_launch(launch: Launch, device: CudaDevice) -> Binary:
    """PTX of one launch; see `compile_kernel`."""
    try:
        import triton
    except ImportError as error:
        raise NoTritonError("Triton is not installed: pip install covan-mlir[cuda]") from error
    with _lock, tempfile.TemporaryDirectory() as folder:
        try:
            text, facts = _translate(launch, device, Path(folder))
        except (triton.CompilationError, RuntimeError) as error:
            raise UnsupportedError(f"Triton refuses {launch.name}: {error}") from error
    if facts["shared"] > device.architecture.shared_memory:
        most = device.architecture.shared_memory
        raise UnsupportedError(
            f"{launch.name} takes {facts['shared']} bytes of shared memory, of which there are {most}"
        )
    if facts["global_scratch_size"] or facts["profile_scratch_size"]:
        raise UnsupportedError(f"{launch.name} wants scratch memory that nobody allocates")
    return Binary(
        launch, without_hidden(text, len(launch.inputs) + len(launch.outputs)), 32 * facts["num_warps"], facts["shared"]
    )


def _translate(launch: Launch, device: CudaDevice, folder: Path) -> tuple[str, dict[str, Any]]:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend

    # Stage by stage: `triton.compile` would go on to a cubin, and keep all of it in the user's home.
    jit_function = function(launch, folder)
    operands = (*launch.inputs, *launch.outputs)
    signature = {name: _TYPES[operand.dtype] for name, operand in zip(jit_function.arg_names, operands, strict=True)}
    aligned = {(n,): [["tt.divisibility", ALIGNMENT]] for n in range(len(operands))}
    # For 90 Triton writes sm_90a, which no later device runs. For sm_90 its passes take the device for the one before,
    # so that no instruction needs the ``a``; only LLVM, which makes PTX of the result, is told of the device.
    wgmma = device.architecture.wgmma and not launch.multiplies_f32
    target = GPUTarget("cuda", device.capability if wgmma else min(device.capability, 89), 32)
    backend = make_backend(target)
    options = backend.parse_options(
        {
            "num_warps": launch.num_warps,
            "num_stages": launch.num_stages,
            "ptx_version": PTX,
            "enable_fp_fusion": launch.contracted,
            "sanitize_overflow": False,
        }
    )
    source = ASTSource(jit_function, signature, {}, aligned)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    facts: dict[str, Any] = {}
    module = stages["ttir"](module, facts)  # which inlines calls
    path = folder / f"{launch.name}.ttir"
    path.write_text(flattened(str(module), str(folder / f"{launch.name}.py"), f"{launch.name}.py"))
    module = ir.parse_mlir_module(str(path), context)
    module.context = context
    for name in ("ttgir", "llir"):
        module = stages[name](module, facts)
    text = str(backend.make_ptx(module, facts, options, device.capability))
    if not wgmma:
        text = re.sub(r"^(\.target sm_\d+)a\b", r"\1", text, flags=re.M)
    return text, facts


def without_hidden(text: str, count: int) -> str:
    """PTX with no more than the first parameters: Triton appends pointers to scratch memory, which are not used.

    Raises:
        UnsupportedError: they are used, or the parameters are not laid out as expected.
    """
    match = re.search(r"\.visible \.entry (\w+)\(\n(.*?)\n\)", text, re.S)
    if match is None:
        raise UnsupportedError("the PTX has no entry point")
    name = match.group(1)
    parameters = [line.strip().rstrip(",") for line in match.group(2).split("\n") if line.strip()]
    for n in range(count, len(parameters)):
        if len(re.findall(rf"\b{name}_param_{n}\b", text)) != 1:
            raise UnsupportedError(f"{name} uses a hidden parameter")
    kept = ",\n".join(f"\t{parameter}" for parameter in parameters[:count])
    return text[: match.start(2)] + kept + text[match.end(2) :]


def assemble(binary: Binary, device: CudaDevice) -> str:
    """What Triton's own ptxas says of a launch; see `assembled`."""
    return assembled(binary.ptx, device.name)


def assembled(text: str, architecture: str) -> str:
    """What Triton's own ptxas says of PTX (registers, spills).

    Raises:
        RuntimeError: it refuses the PTX.
    """
    tool = tool_path("ptxas")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(text)
        command = [tool, "-v", "-lineinfo", f"-arch={architecture}", "-o", str(path.with_suffix(".cubin")), str(path)]
        done = leash.run(command, None)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stderr


def tool_path(name: str) -> str:
    """A tool that comes with Triton: ``ptxas``, ``cuobjdump``, ``nvdisasm``."""
    import triton

    return os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", name)
