"""Models on the command line: a factory in a Python file, or a file that is a model. Needs torch."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from covan_mlir.frontend.stablehlo.suffixes import JAX, STABLEHLO
from covan_mlir.frontend.tensorflow import kinds
from covan_mlir.tools.cli_common import CliError
from covan_mlir.tools.cli_inputs import Input, array

_FILES = (".pt2", ".onnx", JAX, *STABLEHLO)
"""Suffixes of files that are models by themselves, beside those of TensorFlow."""


@dataclass(frozen=True)
class Example:
    """A model with example arguments."""

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def split(source: str) -> tuple[Path, str]:
    """``FILE.py:factory``, or a file or folder that is a model -> (file, factory or an empty string).

    Raises:
        CliError: it is neither, or the file is missing.
    """
    path, factory = Path(source), ""
    if kinds.of_file(path) == kinds.SAVED_MODEL:
        return path, factory
    if path.suffix != ".py" and not _is_model(path):
        before, colon, after = source.rpartition(":")
        if not colon or Path(before).suffix != ".py":
            hint = "give FILE.py:factory, a .pt2, .onnx, .tflite, .keras, .jax or .mlir file, or a SavedModel"
            raise CliError(f"{source}: not a model", hint, code=2)
        path, factory = Path(before), after
    if not path.is_file():
        reason = "is a directory" if path.is_dir() else "no such file"
        raise CliError(f"{path}: {reason}", "check the path of the model")
    return path, factory


def load(path: Path, factory: str, inputs: Sequence[Input], seed: int) -> Example:
    """The model that ``source`` stands for, with ``inputs`` (or else the factory's own arguments) as its example.

    Raises:
        CliError: the file or the factory fails, there is no such factory, or the inputs do not fit the model.
    """
    if path.suffix == ".pt2":
        if inputs:
            raise CliError("a .pt2 file has its inputs already", "leave out --input", code=2)
        return Example(path)
    if _is_model(path):
        return Example(path, _tensors(inputs, seed))
    example = _made(path, factory)
    if inputs:
        example = Example(example.model, _tensors(inputs, seed))
    if isinstance(example.model, _torch().nn.Module | ModuleType) or (
        callable(example.model) and not kinds.is_tensorflow(example.model)
    ):
        _check_arguments(example, bool(inputs))
    return example


def without_inputs(path: Path, factory: str) -> Example:
    """The model that ``source`` stands for, with the arguments that the factory gives, if any.

    Raises:
        CliError: the file or the factory fails, or there is no such factory.
    """
    return Example(path) if _is_model(path) else _made(path, factory)


def dynamic_shapes(example: Example, dynamic: Sequence[str]) -> dict[str, Any] | None:
    """What ``--dynamic NAME_OR_INDEX:DIM[=NAME]`` means, as `torch.export.export` takes it; of an ONNX file or
    a model of TensorFlow's ``NAME=SIZE`` or ``NAME=LOW..HIGH``, as `covan_mlir.compile_module` does.

    Raises:
        CliError: bad syntax, or no such argument or dimension.
    """
    if not dynamic:
        return None
    if kinds.is_tensorflow(example.model) or (isinstance(example.model, Path) and example.model.suffix == ".onnx"):
        return dict(map(_named_range, dynamic))
    if isinstance(example.model, Path):
        raise CliError(f"a {example.model.suffix} file has its dynamic shapes already", "leave out --dynamic", code=2)
    from covan_mlir.frontend.frontends import is_jax  # late: it needs torch

    if is_jax(example.model, example.args, example.kwargs):
        hint = "compile it from Python, with dynamic_shapes as jax.export.symbolic_args_specs takes it"
        raise CliError("--dynamic is not for JAX functions", hint, code=2)
    given = _signature(example.model).bind(*example.args, **example.kwargs).arguments
    shapes: dict[str, Any] = dict.fromkeys(given)
    names = list(given)
    named: dict[str, Any] = {}
    for text in dynamic:
        place, equals, called = text.partition("=")
        name, colon, dim = place.rpartition(":")
        if not colon or not dim.isdecimal() or (equals and not called.isidentifier()):
            hint = "write NAME:DIM or INDEX:DIM, such as 0:1, or with a name for the dimension, 0:1=batch"
            raise CliError(f"--dynamic {text!r} is not understood", hint, code=2)
        if name.isdecimal() and int(name) < len(names):
            name = names[int(name)]
        if name not in given:
            raise CliError(f"--dynamic {text!r}: there is no argument {name!r}", f"there are {', '.join(names)}")
        rank = getattr(given[name], "ndim", None)
        if rank is None or int(dim) >= rank:
            what = "no tensor" if rank is None else f"a tensor of {rank} dimensions"
            raise CliError(f"--dynamic {text!r}: {name} is {what}", "dimensions are counted from 0")
        dims = _torch().export.Dim
        opened = named.setdefault(called, dims(called)) if called else dims.DYNAMIC
        shapes[name] = {**(shapes[name] or {}), int(dim): opened}
    return shapes


def specialised(values: Sequence[str]) -> bool | dict[str, list[int | tuple[int, int]]]:
    """What ``--specialise NAME=1,8,16..64`` means, for ``CompileOptions.specialise``; ``usual`` is True.

    Raises:
        CliError: bad syntax, or a dimension twice.
    """
    if list(values) == ["usual"]:
        return True
    sizes: dict[str, list[int | tuple[int, int]]] = {}
    for text in values:
        name, equals, listed = text.partition("=")
        parts = [part.split("..") for part in listed.split(",")] if listed else []
        if (
            not name.isidentifier()
            or not equals
            or not all(len(part) <= 2 and all(size.isdecimal() for size in part) for part in parts)
        ):
            hint = "write NAME=SIZE,SIZE,LOW..HIGH, such as batch=1,8,16..64, or usual alone"
            raise CliError(f"--specialise {text!r} is not understood", hint, code=2)
        if name in sizes:
            raise CliError(f"--specialise names {name} twice", f"write all of its sizes in one, {text},...", code=2)
        sizes[name] = [int(part[0]) if len(part) == 1 else (int(part[0]), int(part[1])) for part in parts]
    return sizes or False


def _named_range(text: str) -> tuple[str, int | tuple[int | None, int | None] | None]:
    """``batch``, ``batch=4``, ``batch=1..64``, ``batch=2..`` of a symbolic dimension."""
    name, _, wanted = text.partition("=")
    low, dots, high = wanted.partition("..")
    if not name or not all(part.isdecimal() or not part for part in (low, high)) or (not dots and high):
        hint = "write a symbolic dimension's name, with =SIZE or =LOWEST..HIGHEST, such as batch=1..64"
        raise CliError(f"--dynamic {text!r} is not understood", hint, code=2)
    if not wanted:
        return name, None
    if not dots:
        return name, int(low)
    return name, (int(low) if low else None, int(high) if high else None)


def attached(values: Sequence[str]) -> dict[str | int, Any]:
    """What ``--attach WHAT=FILE.py:FUNCTION[:MODE]`` means, for ``CompileOptions.attach``.

    Raises:
        CliError: bad syntax, no such file or function.
    """
    from covan_mlir import Attachment, MlirFunction

    by_key: dict[str | int, list[Any]] = {}
    for value in values:
        what, _, text = value.partition("=")
        where, colon, mode = text.rpartition(":")
        if not colon or mode not in ("tap", "replace"):
            where, mode = text, "tap"
        before, _, function = where.rpartition(":")
        path, function = (Path(where), "") if Path(where).suffix == ".mlir" else (Path(before), function)
        if not what or path.suffix not in (".py", ".mlir"):
            hint = "write --attach features.3.conv=post.py:quantise, with :replace at its end to replace the tensor"
            raise CliError(f"--attach {value!r} is not understood", hint, code=2)
        if not path.is_file():
            raise CliError(f"{path}: no such file", "check the path of the attached function")
        if path.suffix == ".mlir":
            fn: Any = MlirFunction(path.read_text(encoding="utf-8"), function)
        else:
            fn = _function(path, function)
        key: str | int = int(what) if what.isdecimal() else what
        attachments = by_key.setdefault(key, [])
        name = f"{what}:{function or path.stem}" if attachments else ""  # the first is called as what it is attached to
        attachments.append(Attachment(fn, "replace" if mode == "replace" else "tap", name or what))
    return {key: tuple(attachments) for key, attachments in by_key.items()}


def _function(path: Path, name: str) -> Any:
    fn = _attribute(path, _imported(path), name, "function")
    if isinstance(fn, type) and issubclass(fn, _torch().nn.Module):
        module_class: Any = fn
        fn = _user_code(path, f"{name}()", module_class).eval()
    if not callable(fn):
        raise CliError(f"{path}:{name} is a {type(fn).__name__}, not a function", "name a function")
    return fn


def trains(model: Any) -> bool:
    """Whether a module behaves otherwise than in inference: a dropout or a normalisation is in training mode."""
    nn = _torch().nn
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return isinstance(model, nn.Module) and any(m.training and isinstance(m, kinds) for m in model.modules())


def _is_model(path: Path) -> bool:
    """Whether a file is a model by itself."""
    return path.suffix in _FILES or kinds.of_file(path) is not None


def _torch() -> Any:
    import torch  # late: --help and usage errors come without it

    return torch


def _tensors(inputs: Sequence[Input], seed: int) -> tuple[Any, ...]:
    torch, rng = _torch(), np.random.default_rng(seed)
    values: list[Any] = []
    for given in inputs:
        value: Any = array(given, rng, wide=True)
        if isinstance(value, np.ndarray):
            try:
                value = torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape))
            except TypeError as error:
                raise CliError(f"{given.text}: torch has no {value.dtype} tensors", "convert the array") from error
            if given.dtype:
                value = value.to(getattr(torch, given.dtype))
        values.append(value)
    return tuple(values)


def _made(path: Path, factory: str) -> Example:
    value = _attribute(path, _imported(path), factory, "model")
    if not isinstance(value, _torch().nn.Module) and not kinds.is_tensorflow(value):
        if not callable(value):
            raise CliError(
                f"{path}:{factory} is a {type(value).__name__}, not a model", "name a function or an nn.Module"
            )
        try:
            inspect.signature(value).bind()
        except TypeError as error:
            hint = "a factory takes no arguments: it returns the model, or (model, args)"
            raise CliError(f"{path}:{factory} cannot be called: {error}", hint) from error
        except ValueError:
            pass  # a builtin without a signature
        value = _user_code(path, f"{factory}()", value)
    return _unpacked(f"{path}:{factory}", value)


def _attribute(path: Path, module: ModuleType, name: str, what: str) -> Any:
    """What a file calls so; ``what`` it is to be, for messages."""
    names = _candidates(module)
    listing = f"it has {', '.join(names)}" if names else "it has none"
    if not name:
        first = names[0] if names else "factory"
        raise CliError(f"{path}: which {what}?", f"write {path}:{first} ({listing})", code=2)
    if not hasattr(module, name):
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else listing
        raise CliError(f"{path}: there is no {name!r}", hint)
    return getattr(module, name)


def _unpacked(name: str, returned: Any) -> Example:
    hint = "return the model, (model, args) or (model, args, kwargs)"
    model: Any = returned
    args: Any = ()
    kwargs: Any = {}
    if isinstance(returned, tuple | list):
        if not 2 <= len(returned) <= 3:
            raise CliError(f"{name} gave a {type(returned).__name__} of {len(returned)}", hint)
        model, args, *rest = returned
        kwargs = rest[0] if rest else {}
        if not isinstance(args, tuple | list):
            args = (args,)
    if not isinstance(kwargs, Mapping):
        raise CliError(f"{name} gave a {type(kwargs).__name__} as kwargs", hint)
    if not (callable(model) or isinstance(model, _torch().export.ExportedProgram) or kinds.is_tensorflow(model)):
        raise CliError(f"{name} gave a {type(model).__name__}, which is no model", hint)
    return Example(model, tuple(args), dict(kwargs))


def _imported(path: Path) -> ModuleType:
    """The file as a module of its own name; its folder comes first on the path, as for ``python FILE.py``."""
    path = path.resolve()
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_model"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    _user_code(path, "importing it", lambda: spec.loader.exec_module(module))
    return module


def _user_code(path: Path, doing: str, call: Any) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1].lineno if own else None
        text = next(iter(str(error).splitlines()), "")
        raise CliError(
            f"{path}{f':{line}' if line else ''}: {doing} failed: {type(error).__name__}{f': {text}' if text else ''}",
            "--debug shows the traceback",
        ) from error


def _candidates(module: ModuleType) -> list[str]:
    """Names of what could be a model: modules, functions and classes that the file itself defines."""
    kind = _torch().nn.Module
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, kind) or (callable(value) and getattr(value, "__module__", "") == module.__name__))
    ]


def _signature(model: Any) -> inspect.Signature:
    return inspect.signature(model.forward if isinstance(model, _torch().nn.Module) else model)


def _check_arguments(example: Example, from_options: bool) -> None:
    """Before the export, which would say it at length."""
    try:
        signature = _signature(example.model)
    except (TypeError, ValueError):
        return  # no signature to be had: the export decides
    try:
        signature.bind(*example.args, **example.kwargs)
    except TypeError as error:
        name = getattr(example.model, "__name__", type(example.model).__name__)
        takes = f"{name} takes {signature}"
        if not example.args and not example.kwargs and not from_options:
            hint = f"{takes}: give --input 1x3x224x224xf32 per argument, or return (model, args)"
            raise CliError("there are no example inputs", hint) from error
        raise CliError(f"the inputs do not fit the model: {error}", f"{takes}: one --input per argument") from error
