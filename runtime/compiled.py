"""The core of a compiled model: arguments in, results out, on the device of this machine that fits."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from covan_mlir.artifacts import artifact, binding, pytree
from covan_mlir.artifacts.attachment import Attached
from covan_mlir.artifacts.schema import SizeRange
from covan_mlir.artifacts.signature import Leaf
from covan_mlir.errors import DeviceError, InputError
from covan_mlir.provenance.model import LineageData
from covan_mlir.runtime import aliases, checks, choice, contract, devices, remote, team, values
from covan_mlir.runtime.compiled_program import Arguments, CompiledProgram
from covan_mlir.runtime.isolation.program import IsolatedProgram
from covan_mlir.runtime.plain_call import PlainCall
from covan_mlir.runtime.program import Program
from covan_mlir.runtime.size_guard import SizeGuard

log = logging.getLogger(__name__)


class CompiledModel:
    """A compiled model. Call it as the model: same arguments, same results.

    Safe to call from several threads; calls of one take turns.

    Attributes:
        signature: structure, dtypes and shapes of arguments and results.
        variants: the program for each target; the first that this machine can run is the one that is called, asked
            and shown: ``target``, ``lineage`` and ``info`` are its.
        variant: that one; the first of all if this machine can run none.
        driver: the device that runs it; empty if this machine can run none.
        versions: for some sizes of open dimensions, each called where its sizes are those of the arguments.
        ranges: of a version, these sizes.
    """

    def __init__(self, compiled: CompiledProgram) -> None:
        signature = self.signature = compiled.signature
        self.variants = compiled.variants
        self._lacking = [(variant.target, devices.lacking(variant.requires)) for variant in self.variants]
        fits = [variant for variant, (_, what) in zip(self.variants, self._lacking, strict=True) if not what]
        self.variant = fits[0] if fits else self.variants[0]
        self.driver = ""
        self._compiled = compiled
        self._weights = compiled.weights
        self._states = compiled.states
        self._program: Program | IsolatedProgram | None = None
        self._bound: list[Any] = []
        self._plain: PlainCall | None = None
        self._expected = contract.Results(signature)
        self._checks = checks.ArgumentChecks(signature)
        told = [index for index, (kind, _) in enumerate(signature.results) if kind == "faults"]
        self._told = list(zip(told, signature.computed_checks, strict=True))
        self._readers: dict[str, Callable[[Any], Any]] = {}
        self._writers: dict[tuple[bool, str], Callable[[Any], Any]] = {}
        if fits:
            if compiled.place is None:
                self.driver = choice.driver(compiled.device, self.variant.requires, self.variant.info)
            self._load()
        self._build = pytree.builder(signature.out_tree)
        self._build_taps = [(tap.name, pytree.builder(tap.tree)) for tap in signature.taps]
        self._flat = not signature.in_tree.children[1].children and all(
            child.kind == "leaf" for child in signature.in_tree.children[0].children
        )
        self._pure = not signature.states and not any(leaf.mutated for leaf in signature.inputs)
        self._stateful = threading.RLock()
        self.ranges: tuple[SizeRange, ...] = ()
        self.versions: tuple[CompiledModel, ...] = tuple(self._specialised(compiled))
        self._guard = SizeGuard(signature, [each.ranges for each in self.versions]) if self.versions else None

    def _specialised(self, compiled: CompiledProgram) -> Iterator[CompiledModel]:
        """The versions that there are for the target of this one."""
        for number, version in enumerate(compiled.specialised):
            variants = tuple(variant for variant in version.variants if variant.target == self.target)
            if variants:
                model = self._of_version(replace(compiled.version(number), variants=variants), number)
                model.ranges = version.ranges
                yield model

    def _of_version(self, compiled: CompiledProgram, number: int) -> CompiledModel:
        return CompiledModel(compiled)

    def version_for(self, *args: Any, **kwargs: Any) -> CompiledModel:
        """What a call with these arguments runs: one of the `versions`, or this one, which is for all other sizes.

        Raises:
            InputError: the arguments have another structure than the model's.
        """
        if self._guard is None:
            return self
        number = self._guard(self._leaves(args, kwargs))
        return self if number is None else self.versions[number]

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        if self._flat and not kwargs and len(args) == len(self.signature.inputs):
            return args
        return self._flatten(args, kwargs)

    def _load(self) -> None:
        self._forks = devices.forks()
        if self._forks and self.driver == team.DRIVER:
            log.info("not shared with OpenMP's threads, which a forked process has not, nor can it start others")
            self.driver = "local-task"
        if self._compiled.place is not None:
            self._program = IsolatedProgram(self._compiled.place, self.target)
            self.driver = self._program.driver
            self._remote = False  # its process takes tensors to its device
        else:
            self._remote = remote.is_remote(team.hal(self.driver))
            self._program = self.program_on(self.driver)
        # Weights that IREE's torch input takes as arguments, in order; bound once.
        if self.info.get("weights") == "arguments":
            self._bound = [
                self._read(values.dtype_of(value), value, f"weight {name}") for name, value in self._weights.items()
            ]
        self._plain = None
        if isinstance(self._program, Program) and not self._remote and PlainCall.fits(self.signature):
            self._plain = PlainCall(self.signature, self._program, self._bound, self._expected, self._checks)

    def _load_again(self) -> None:
        """In a forked process: its parent's program waits for threads that are not here."""
        devices.keep_for_ever((self._program, self._bound, self._readers, self._writers))
        self._readers, self._writers, self._stateful = {}, {}, threading.RLock()
        log.info("loading the program again: this process is a fork of the one that did")
        self._load()

    @property
    def program(self) -> Program | IsolatedProgram:
        """What a call runs.

        Raises:
            DeviceError: this machine can run none.
        """
        self.check_device()
        assert self._program is not None
        return self._program

    def close(self) -> None:
        """End the process of an isolated program now, and not when this object goes; another call starts a new one. A
        program of this process stays."""
        for version in self.versions:
            version.close()
        if isinstance(self._program, IsolatedProgram):
            self._program.close()

    @property
    def pure(self) -> bool:
        """Whether a call changes nothing: neither buffers of the model nor arguments."""
        return self._pure

    @property
    def target(self) -> str:
        """What the program was compiled for."""
        return self.variant.target

    @property
    def lineage(self) -> LineageData:
        """Which source action became which site."""
        return self.variant.lineage

    @property
    def info(self) -> Mapping[str, Any]:
        """Facts about the compilation; see `Variant`."""
        return self.variant.info

    @property
    def attachments(self) -> tuple[Attached, ...]:
        """Operators that `CompileOptions.attach` put on tensors of the model."""
        return self.variant.attachments

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
            OutOfRangeError, DivisionError: an index is out of range, a divisor zero: says which operator takes it, and
                where; nothing was changed.
            DeviceError: no device of this machine can run it, or the device failed or ran out of memory.
            IsolationError: the process of an isolated program died, or took more than it was allowed.
            CovanError: the program failed while it ran.
        """
        if self._guard is not None and (number := self._guard(self._leaves(args, kwargs))) is not None:
            version = self.versions[number]
            if self._pure:
                return version(*args, **kwargs)
            with self._stateful:
                return version(*args, **kwargs)
        if self._plain is not None and not kwargs and self._forks == devices.forks():
            results = self._plain(args)
            if results is not NotImplemented:
                return results
        return self._run(args, kwargs, False)[0]

    def call_with_attachments(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Run the model; -> (its results, what each tap gives by the attachment's name).

        Raises:
            InputError, DeviceError, CovanError: as for a call.
        """
        version = self.version_for(*args, **kwargs)
        if version is self:
            return self._run(args, kwargs, True)
        with self._stateful:
            return version.call_with_attachments(*args, **kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], taps: bool) -> tuple[Any, dict[str, Any]]:
        leaves, arguments, _, as_numpy = self.checked(args, kwargs)
        assert self._program is not None
        signature = self.signature
        if self._pure:
            out = self._program.invoke([*arguments, *self._bound], len(signature.results))
            return self._results(out, as_numpy, taps)
        with self._stateful:
            held = [self._states.read(state.name) for state in signature.states]
            aliases.check(
                [
                    *(
                        aliases.Passed(f"argument {leaf.name}", value, leaf.mutated)
                        for leaf, value in zip(signature.inputs, leaves, strict=True)
                        if leaf.kind == "tensor" and (leaf.mutated or not isinstance(value, np.generic))
                    ),
                    *self._apart(held),
                ]
            )
            for state, value in zip(signature.states, held, strict=True):
                arguments.append(self._read(state.dtype, value, f"the model's buffer {state.name}"))
            out = self._program.invoke([*arguments, *self._bound], len(signature.results))
            return self._results(out, as_numpy, taps, leaves, held)

    def _apart(self, held: Sequence[Any]) -> list[aliases.Passed]:
        """The states; those in one place are one tensor of the model, which it may have under several names."""
        states: dict[Any, aliases.Passed] = {}
        for state, value in zip(self.signature.states, held, strict=True):
            place = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
            states.setdefault(place, aliases.Passed(f"the model's buffer {state.name}", value, True))
        return list(states.values())

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a call, as the program takes them.

        Raises:
            InputError, OutOfRangeError, DivisionError, DeviceError: as for a call.
        """
        if self._program is None:
            self.check_device()
        if self._forks != devices.forks():
            self._load_again()
        signature = self.signature
        leaves = [
            values.array_of(value, leaf.dtype, leaf.shape) if leaf.kind == "tensor" else value
            for leaf, value in zip(signature.inputs, self._leaves(args, kwargs), strict=True)
        ]
        symbols: dict[str, int] = {}
        arguments: list[Any] = []
        use_numpy = False
        use_torch = False
        for leaf, value in zip(signature.inputs, leaves, strict=True):
            if leaf.kind == "tensor":
                if isinstance(value, np.ndarray | np.generic):
                    use_numpy = True
                    if isinstance(value, np.ma.MaskedArray):
                        raise InputError(f"argument {leaf.name} is a masked array; pass its data, or filled()")
                    value = np.asarray(value)
                else:
                    use_torch = True
                arguments.append(self._argument(leaf, value, symbols))
            elif leaf.kind == "scalar":
                arguments.append(binding.scalar(leaf, value, symbols))
            else:
                binding.check_constant(leaf, value)
        binding.check_symbols(signature, symbols)
        self._checks(leaves, symbols)
        as_numpy = (use_numpy and not use_torch) or values.torch_module() is None
        return Arguments(leaves, arguments, symbols, as_numpy)

    def program_on(self, driver: str) -> Program:
        """The program, loaded on a device of this process.

        Raises:
            DeviceError: the device is not here, or does not take the program.
        """
        as_arguments = self.info.get("weights") == "arguments"
        bound = [contract.TensorType(values.dtype_of(value), tuple(value.shape)) for value in self._weights.values()]
        check = partial(contract.check_program, signature=self.signature, bound=bound if as_arguments else ())
        return Program(self.variant.program, self.signature.function, driver, self.raw_weights(), check)

    def raw_weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """The bytes of the weights where they are, by parameter name."""
        return {name: values.raw(value) for name, value in self._weights.items()}

    def full_arguments(self, arguments: Arguments) -> tuple[list[Any], list[tuple[str, Any]]]:
        """All that the program takes in a call with these arguments, states and bound weights included; and of the
        tensors among it dtype and value, in the same order."""
        signature = self.signature
        held = [(state.dtype, self._states.read(state.name)) for state in signature.states]
        tensors = [
            *(
                (leaf.dtype, value)
                for leaf, value in zip(signature.inputs, arguments.leaves, strict=True)
                if leaf.kind == "tensor"
            ),
            *held,
            *((values.dtype_of(value), value) for value in (self._weights.values() if self._bound else ())),
        ]
        passed = [
            (values.PAIRS[dtype], values.as_pairs(value)) if dtype in values.PAIRS else (dtype, value)
            for dtype, value in tensors
        ]
        states = (self._read(dtype, value, "a state") for dtype, value in held)
        return [*arguments.passed, *states, *self._bound], passed

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
        if not isinstance(value, np.ndarray) and not values.is_tensor(value):
            raise InputError(
                f"argument {leaf.name} is a {type(value).__name__}; expected a tensor {leaf.type_string()}"
            )
        binding.check_dtype(leaf, values.dtype_name(value.dtype))
        try:
            shape = value.shape
        except RuntimeError as error:  # of nested tensors
            raise _special(f"argument {leaf.name}", value) from error
        if shape != leaf.shape:  # torch's are tuples, too
            binding.check_shape(leaf, tuple(shape), symbols)
        if leaf.fixed is not None:
            binding.check_fixed(leaf, value)
        return self._read(leaf.dtype, value, f"argument {leaf.name}")

    def _read(self, dtype: str, value: Any, name: str) -> Any:
        assert self._program is not None
        if dtype in values.PAIRS:
            try:
                pairs = values.as_pairs(value)
            except RuntimeError as error:
                raise _special(name, value) from error
            return self._read(values.PAIRS[dtype], pairs, name)
        if isinstance(value, np.ndarray):
            value = values.plain_bools(value) if dtype == "bool" else value
            if not self._remote:
                return values.from_numpy(self._program.device, value, dtype)
        elif not value.is_cpu:
            raise InputError(f"{name} is on {value.device}; pass it on the CPU: .cpu()")
        try:
            if self._remote:
                return remote.to_device(self._program.device, value, dtype)
            read = self._readers.get(dtype)
            if read is None:
                read = self._readers[dtype] = values.torch_reader(self._program.device, dtype)
            return read(value)
        except DeviceError:
            raise
        except (RuntimeError, BufferError, ValueError) as error:
            raise _special(name, value) from error

    def _write(self, dtype: str, as_numpy: bool) -> Callable[[Any], Any]:
        write = self._writers.get((as_numpy, dtype))
        if write is None:
            assert self._program is not None
            device = self._program.device
            if dtype in values.PAIRS:
                pairs = self._write(values.PAIRS[dtype], as_numpy)

                def write(view: Any) -> Any:
                    return values.from_pairs(pairs(view))

            elif self._remote:
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
        signature, expected = self.signature, self._expected
        expected.count(out)
        for index, check in self._told:  # before anything is written
            if self._write("bool", True)(expected.tensor(out, index)):
                raise checks.failed(check)
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
            if kind == "faults":
                continue
            old = leaves[target] if kind == "input" else held[target]
            dtype = signature.inputs[target].dtype if kind == "input" else signature.states[target].dtype
            new = self._write(dtype, isinstance(old, np.ndarray))(expected.tensor(out, index))
            if kind == "state":
                self._states.write(signature.states[target].name, new)
            else:
                values.overwrite(old, new)
        rest = iter(tapped)
        return self._build(iter(returned)), {name: build(rest) for name, build in self._build_taps if taps}

    def _result(self, out: Any, index: int, leaf: Leaf, as_numpy: bool) -> Any:
        if leaf.kind == "tensor":
            return self._write(leaf.dtype, as_numpy)(self._expected.tensor(out, index))
        value = self._expected.number(out, index)
        return bool(value) if leaf.dtype == "bool" else value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.covan`` artifact, atomically; `covan_mlir.load` reads it.

        Raises:
            ArtifactError: the file cannot be written.
        """
        states = {state.name: self._states.read(state.name) for state in self.signature.states}
        artifact.write(
            path,
            artifact.Contents(
                variants=self.variants,
                signature=self.signature,
                device=self._compiled.device,
                versions=self._compiled.versions,
                weights={name: _blob(value) for name, value in self._weights.items()},
                states={name: _blob(value) for name, value in states.items()},
                specialised=self._compiled.specialised,
            ),
        )

    def __reduce__(self) -> NoReturn:
        """Raises `InputError`: pickle, ``copy`` and ``torch.save`` cannot hold a loaded program."""
        raise InputError(
            f"{type(self).__name__} cannot be pickled or copied: write it with save(path), and read it with "
            "covan_mlir.load(path)"
        )


def _special(name: str, value: Any) -> InputError:
    """For a tensor without memory of the usual kind."""
    return InputError(
        f"{name} is a {type(value).__name__} without elements in memory as a dense tensor has them (sparse, nested, "
        "fake, functional or of torch.func): pass a plain tensor, such as .to_dense()"
    )


def _blob(value: Any) -> artifact.Blob:
    return artifact.Blob(values.dtype_of(value), tuple(value.shape), values.raw(value))
