"""A compiled model: call it, ask where things came from, save it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import iree.runtime as rt
import numpy as np

from covan_mlir.artifacts import binding, pytree
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import CovanError, DeviceError, InputError
from covan_mlir.lineage import Action, Lineage, Site
from covan_mlir.runtime import choice, devices, remote, team, values
from covan_mlir.runtime.program import Program

if TYPE_CHECKING:
    from covan_mlir.attaching.attachment import Attached
    from covan_mlir.checking.verdict import Verification
    from covan_mlir.comparing.compare import CompareOptions
    from covan_mlir.comparing.comparison import Comparison
    from covan_mlir.origin import Origin
    from covan_mlir.profiling.profile import Profile
    from covan_mlir.reporting.report import Compared, Timed


class StateStore(Protocol):
    """Where the buffers that a call mutates are held."""

    def read(self, name: str) -> Any:
        """The buffer's value now: a torch tensor or a numpy array."""

    def write(self, name: str, value: Any) -> None:
        """Make ``value`` (of the same library as what `read` gave) the buffer's value."""


class Executable:
    """A compiled model. Call it as the model: same arguments, same results.

    Safe to call from several threads; calls of one executable take turns.

    Attributes:
        signature: structure, dtypes and shapes of arguments and results.
        variants: the program for each target; the first that this machine can run is the one that is called, asked
            and shown: ``target``, ``lineage`` and ``info`` are its.
        origin: the model it was compiled from; None if it comes from a file.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        signature: Signature,
        *,
        device: str,
        weights: Mapping[str, Any],
        states: StateStore,
        versions: Mapping[str, str],
        origin: Origin | None = None,
    ) -> None:
        self.signature = signature
        self.variants = tuple(variants)
        self.origin = origin
        self._lacking = [(it.target, devices.lacking(it.requires)) for it in self.variants]
        fits = [it for it, (_, what) in zip(self.variants, self._lacking, strict=True) if not what]
        self._variant = fits[0] if fits else self.variants[0]
        self._device_name = device
        self._weights = weights
        self._versions = versions
        self._states = states
        self._program: Program | None = None
        self._bound: list[Any] = []
        self._readers: dict[str, Callable[[Any], Any]] = {}
        self._writers: dict[tuple[bool, str], Callable[[Any], Any]] = {}
        if fits:
            driver = self._driver = choice.driver(device, self._variant.requires, self._variant.info)
            self._remote = remote.is_remote(team.hal(driver))
            self._program = self._load(driver)
            # Weights that IREE's torch input takes as arguments, in order; bound once.
            if self.info.get("weights") == "arguments":
                self._bound = [self._read(_dtype(value), value, name) for name, value in weights.items()]
        self._build = pytree.builder(signature.out_tree)
        self._build_taps = [(tap.name, pytree.builder(tap.tree)) for tap in signature.taps]
        self._flat = not signature.in_tree.children[1].children and all(
            child.kind == "leaf" for child in signature.in_tree.children[0].children
        )
        self._stateful = threading.RLock()

    def _load(self, driver: str) -> Program:
        weights = {name: _raw(value) for name, value in self._weights.items()}
        return Program(self._variant.program, self.signature.function, driver, weights)

    @property
    def target(self) -> str:
        """What the program was compiled for."""
        return self._variant.target

    @property
    def lineage(self) -> Lineage:
        """Which source action became which site."""
        return self._variant.lineage

    @property
    def info(self) -> Mapping[str, Any]:
        """Facts about the compilation; see `Variant`."""
        return self._variant.info

    @property
    def attachments(self) -> tuple[Attached, ...]:
        """Operators that `CompileOptions.attach` put on tensors of the model."""
        return self._variant.attachments

    def check_device(self) -> None:
        """See whether there is a program that this machine can run.

        Raises:
            DeviceError: there is none; says for which targets there are programs, and what they miss here.
        """
        if self._program is None:
            raise DeviceError(
                "no program for this machine: "
                + "; ".join(f"{name} needs {what}" if what else name for name, what in self._lacking)
                + ". Compile for one of the devices that 'covan devices' lists"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model. What taps give is left out (`call_with_attachments`).

        Raises:
            InputError: the arguments do not fit: says which, what was expected, what to do.
            DeviceError: no device of this machine can run it, or the device failed or ran out of memory.
            CovanError: the program failed while it ran.
        """
        return self._run(args, kwargs, False)[0]

    def call_with_attachments(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Run the model; -> (its results, what each tap gives by the attachment's name).

        Raises:
            InputError, DeviceError, CovanError: as for a call.
        """
        return self._run(args, kwargs, True)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], taps: bool) -> tuple[Any, dict[str, Any]]:
        leaves, arguments, _, as_numpy = self._checked(args, kwargs)
        assert self._program is not None
        signature = self.signature
        if not signature.states and not any(leaf.mutated for leaf in signature.inputs):
            out = self._program.invoke([*arguments, *self._bound], len(signature.results))
            return self._results(out, as_numpy, taps)
        with self._stateful:
            held = [self._states.read(state.name) for state in signature.states]
            for state, value in zip(signature.states, held, strict=True):
                arguments.append(self._read(state.dtype, value))
            out = self._program.invoke([*arguments, *self._bound], len(signature.results))
            return self._results(out, as_numpy, taps, leaves, held)

    def _checked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], list[Any], dict[str, int], bool]:
        """-> (leaves of a call's arguments, what the program takes for them, sizes of symbols, results as numpy)."""
        if self._program is None:
            self.check_device()
        signature = self.signature
        if self._flat and not kwargs and len(args) == len(signature.inputs):
            leaves: Sequence[Any] = args
        else:
            leaves = self._flatten(args, kwargs)
        symbols: dict[str, int] = {}
        arguments: list[Any] = []
        use_numpy = False
        use_torch = False
        for leaf, value in zip(signature.inputs, leaves, strict=True):
            if leaf.kind == "tensor":
                if isinstance(value, np.ndarray | np.generic):
                    use_numpy = True
                    value = np.asarray(value)
                else:
                    use_torch = True
                arguments.append(self._argument(leaf, value, symbols))
            elif leaf.kind == "scalar":
                arguments.append(binding.scalar(leaf, value, symbols))
            elif value != leaf.value or type(value) is not type(leaf.value):
                raise InputError(
                    f"argument {leaf.name} is {value!r}, but was {leaf.value!r} when the model was exported, and is "
                    "built into the program: compile again for this value"
                )
        self._check_symbols(symbols)
        return leaves, arguments, symbols, (use_numpy and not use_torch) or values.torch_module() is None

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        args, kwargs = binding.rebind(self.signature, args, kwargs)
        try:
            return pytree.flatten_like(self.signature.in_tree.children[0], args, "args") + pytree.flatten_like(
                self.signature.in_tree.children[1], kwargs, "kwargs"
            )
        except ValueError as error:
            expected = ", ".join(f"{leaf.name}: {leaf.type_string()}" for leaf in self.signature.inputs)
            raise InputError(f"{error}. The model was compiled for ({expected})") from None

    def _argument(self, leaf: Leaf, value: Any, symbols: dict[str, int]) -> Any:
        shape = getattr(value, "shape", None)
        dtype = getattr(value, "dtype", None)
        if shape is None or dtype is None:
            raise InputError(
                f"argument {leaf.name} is a {type(value).__name__}; expected a tensor {leaf.type_string()}"
            )
        if str(dtype).removeprefix("torch.") != leaf.dtype:
            name = str(dtype).removeprefix("torch.")
            raise InputError(
                f"argument {leaf.name} is {name}; expected {leaf.dtype}: convert it with .to() or .astype()"
            )
        if tuple(shape) != leaf.shape:
            binding.check_shape(leaf, tuple(shape), symbols)
        return self._read(leaf.dtype, value, leaf.name)

    def _read(self, dtype: str, value: Any, name: str = "") -> Any:
        assert self._program is not None
        if isinstance(value, np.ndarray) and not self._remote:
            return values.from_numpy(self._program.device, value, dtype)
        if not isinstance(value, np.ndarray) and value.device.type != "cpu":
            raise InputError(f"argument {name} is on {value.device}; pass it on the CPU: {name}.cpu()")
        if self._remote:
            return remote.to_device(self._program.device, value, dtype)
        read = self._readers.get("torch")
        if read is None:
            read = self._readers["torch"] = values.torch_reader(self._program.device)
        return read(value)

    def _write(self, dtype: str, as_numpy: bool) -> Callable[[Any], Any]:
        write = self._writers.get((as_numpy, dtype))
        if write is None:
            assert self._program is not None
            device = self._program.device
            if self._remote:
                copy = remote.to_numpy if as_numpy else remote.to_torch
                write = partial(copy, device, dtype=dtype)
            elif as_numpy:
                write = partial(values.to_numpy, dtype=dtype)
            else:
                write = values.torch_writer(device, dtype)
            self._writers[as_numpy, dtype] = write
        return write

    def _results(
        self, out: Any, as_numpy: bool, taps: bool, leaves: Sequence[Any] = (), held: Sequence[Any] = ()
    ) -> tuple[Any, dict[str, Any]]:
        signature = self.signature
        returned: list[Any] = [leaf.value for leaf in signature.outputs]
        tapped: list[Any] = []
        for index, (kind, target) in enumerate(signature.results):
            if kind == "output":
                returned[target] = self._result(out, index, signature.outputs[target], as_numpy)
                continue
            if kind == "tap":
                if taps:
                    tapped.append(self._result(out, index, signature.tap_leaves[target], as_numpy))
                continue
            old = leaves[target] if kind == "input" else held[target]
            dtype = signature.inputs[target].dtype if kind == "input" else signature.states[target].dtype
            new = self._write(dtype, isinstance(old, np.ndarray))(out.get_as_object(index, rt.HalBufferView))
            if kind == "state":
                self._states.write(signature.states[target].name, new)
            else:
                _overwrite(old, new)
        rest = iter(tapped)
        return self._build(iter(returned)), {name: build(rest) for name, build in self._build_taps if taps}

    def _result(self, out: Any, index: int, leaf: Leaf, as_numpy: bool) -> Any:
        if leaf.kind == "tensor":
            return self._write(leaf.dtype, as_numpy)(out.get_as_object(index, rt.HalBufferView))
        value = out.get_variant(index)
        return bool(value) if leaf.dtype == "bool" else value

    def _check_symbols(self, symbols: Mapping[str, int]) -> None:
        for name, value in symbols.items():
            low, high = self.signature.symbols.get(name, (None, None))
            if (low is not None and value < low) or (high is not None and value > high):
                users = [
                    leaf.name for leaf in self.signature.inputs if name in map(str, leaf.shape) or leaf.symbol == name
                ]
                raise InputError(
                    f"dimension {name} (of {', '.join(users)}) is {value}; the model was exported for "
                    f"{low if low is not None else '-∞'} ≤ {name} ≤ {high if high is not None else '∞'}"
                )

    def explain(self, what: Action | int | str | None = None) -> str:
        """Text table of what each site performs; see `Lineage.explain`."""
        return self.lineage.explain(what)

    def verify(self) -> Verification:
        """Check that the lineage is true: the source model against every observed phase and the final program.

        Weak bisimulation of the action-reflected graphs, up to what each site is said to perform; fates against both.
        The result is true only if every check ran to its end and holds; it says where and why it does not.
        """
        from covan_mlir.checking.verify import verify

        return verify(self.lineage)

    def compare(
        self,
        *args: Any,
        model: Any = None,
        options: CompareOptions | None = None,
        progress: Callable[[str], None] | None = None,
        **kwargs: Any,
    ) -> Comparison:
        """Compare the compiled program with eager PyTorch on these arguments, tensor by tensor.

        The model is compiled again with all its tensors as results; programs run in processes of their own, so that
        one that crashes is a finding. Needs torch and the compiler.

        Args:
            model: what the program was compiled from; needed for an executable from a file.
            options: see `CompareOptions`.
            progress: is told the name of each step before it runs.

        Raises:
            InputError: the arguments do not fit, eager PyTorch fails on them, or the model is another or missing.
        """
        from covan_mlir.comparing.compare import compare

        leaves, *_ = self._checked(args, kwargs)
        return compare(self, leaves, model, (args, kwargs), options, progress or (lambda step: None))

    def profile(self, *args: Any, repeat: int = 50, **kwargs: Any) -> Profile:
        """Time each site over many calls, and tell which actions, modules and source lines the time goes to.

        The model's state and mutated arguments keep their values. The calls run in another process (docs/profiling.md).

        Args:
            args, kwargs: as for a call.
            repeat: how many calls are timed, after a few that are not.

        Raises:
            InputError, DeviceError: as for a call.
            ProfileError: the device gives no times, or what ran is not what the lineage lists.
        """
        from covan_mlir.profiling import run
        from covan_mlir.runtime.profile import Argument

        leaves, arguments, symbols, _ = self._checked(args, kwargs)
        signature, program = self.signature, self._program
        assert program is not None
        held = [self._states.read(state.name) for state in signature.states]
        tensors = [
            *(
                (leaf.dtype, value)
                for leaf, value in zip(signature.inputs, leaves, strict=True)
                if leaf.kind == "tensor"
            ),
            *((state.dtype, value) for state, value in zip(signature.states, held, strict=True)),
            *((_dtype(value), value) for value in (self._weights.values() if self._bound else ())),
        ]
        given = iter([Argument(values.host_array(value, dtype), dtype) for dtype, value in tensors])
        arguments += [self._read(state.dtype, value) for state, value in zip(signature.states, held, strict=True)]
        arguments += self._bound
        notes, driver = [], self._driver
        if driver == team.DRIVER:  # the profiler is a program of IREE's, and has no such threads
            driver = "local-task"
            program = self._load(driver)
            notes.append(f"calls share kernels with OpenMP threads (device {team.DRIVER!r}); profiled on {driver!r}")
        return run.measure(
            self._variant,
            signature.function,
            driver,
            [Argument(it) if isinstance(it, int | float) else next(given) for it in arguments],
            {name: _raw(value) for name, value in self._weights.items()},
            symbols,
            lambda: program.invoke(arguments, len(signature.results)),
            repeat=repeat,
            notes=notes,
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        profile: Timed | Mapping[int, float] | None = None,
        comparison: Compared | Mapping[int, float] | None = None,
        title: str = "",
        source: bool = True,
    ) -> None:
        """Write source code, source graph and compiled graph side by side, as one HTML file (docs/report.md).

        Args:
            path: the file, replaced if it exists.
            profile: what `profile` gave, or seconds by site: colours by time.
            comparison: what a comparison with eager gave, or errors by action: colours by error.
            title: of the page.
            source: show the text of source lines, where their files can be read.

        Raises:
            InputError: there is no lineage, or the profile or comparison is of another program.
            CovanError: the file cannot be written.
        """
        from covan_mlir.reporting import report

        report.write(
            path,
            self.lineage,
            title=title,
            target=self.target,
            profile=profile,
            comparison=comparison,
            source=source,
        )

    def kernel_code(self, site: Site | int) -> bytes:
        """Code of the kernel that a site runs, as the program holds it: machine code for CPUs, the text of a PTX module
        for CUDA, a SPIR-V module for Vulkan.

        Raises:
            KeyError: there is no such site.
            CovanError: the program does not say where the kernel's code is: the site is no kernel but a copy or a fill,
                or the program is without debug symbols.
        """
        from covan_mlir.artifacts import machine_code

        kernel = self.lineage.site(site).kernel
        kind = self.target.partition(":")[0]
        read = {"vulkan": machine_code.spirv, "cuda": machine_code.ptx}.get(kind, machine_code.kernels)
        code = read(self._variant.program).get(kernel)
        if code is None:
            hint = "" if kind in ("vulkan", "cuda") else ": compile it without --iree-llvmcpu-debug-symbols=false"
            raise CovanError(f"the program does not say where the code of {kernel or 'this site'} is{hint}")
        return code

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.covan`` artifact, atomically; `covan_mlir.load` reads it.

        Raises:
            ArtifactError: the file cannot be written.
        """
        from covan_mlir.artifacts import artifact

        states = {state.name: self._states.read(state.name) for state in self.signature.states}
        artifact.write(
            path,
            artifact.Contents(
                variants=self.variants,
                signature=self.signature,
                device=self._device_name,
                versions=self._versions,
                weights={name: _blob(value) for name, value in self._weights.items()},
                states={name: _blob(value) for name, value in states.items()},
            ),
        )

    def __repr__(self) -> str:
        return f"<Executable for {self.target}: {len(self.signature.inputs)} inputs, {self.lineage!r}>"


def _raw(value: Any) -> np.ndarray[Any, Any]:
    """The bytes of a weight where they are."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1).view(np.uint8)
    flat: np.ndarray[Any, Any] = value.detach().reshape(-1).view(values.torch_module().uint8).numpy()  # type: ignore[union-attr]
    return flat


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _blob(value: Any) -> Any:
    from covan_mlir.artifacts import artifact

    return artifact.Blob(_dtype(value), tuple(value.shape), _raw(value))


def _overwrite(old: Any, new: Any) -> None:
    """Give the caller's own array or tensor its new value."""
    if isinstance(old, np.ndarray):
        old[...] = new
    else:
        torch: Any = values.torch_module()
        with torch.no_grad():
            old.copy_(new)
