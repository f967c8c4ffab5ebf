"""Models in memory as functions with known inputs: Keras models, functions and modules of TensorFlow."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.tensorflow.messages import Structure
from covan_mlir.frontend.translation.arrays import to_numpy
from covan_mlir.frontend.translation.names import unique

BATCH = "batch"
"""What the open first dimension of all inputs of a Keras model is called: Keras has one size for them."""
PREFERRED = "serving_default"


@dataclass(frozen=True)
class Function:
    """A traced function of TensorFlow's.

    Attributes:
        concrete: a `tf.ConcreteFunction`.
        inputs: names of the tensors that it takes, in order, each once.
        results: how what it gives is put together.
        layers: names of the Keras layers in it.
        keras: whether the first dimensions of its inputs are one size.
        given: example arguments by name, if it was traced for them.
        owner: whose variables it reads: they live as long as this does.
    """

    concrete: Any
    inputs: tuple[str, ...]
    results: Structure
    layers: frozenset[str] = frozenset()
    keras: bool = False
    given: Mapping[str, Any] | None = field(default=None, compare=False)
    owner: Any = None

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any] | None]:
        """Its results for tensors in the order of its inputs, as TensorFlow computes them."""
        left = iter(values)
        args, kwargs = tf.nest.map_structure(
            lambda leaf: tf.convert_to_tensor(next(left), leaf.dtype) if isinstance(leaf, tf.TensorSpec) else leaf,
            self.concrete.structured_input_signature,
        )
        return [np.asarray(value) for value in tf.nest.flatten(self.concrete(*args, **kwargs)) if value is not None]


def traced(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], opened: Collection[str]) -> Function:
    """A model as a function: as it says itself what it takes, or else for example arguments.

    Args:
        opened: dimensions (``image:0``) that stay open, though the example arguments have sizes there.

    Raises:
        ExportError: TensorFlow does not trace it, or it has several functions.
        InputError: it does not say what it takes, and no arguments are given, or they do not fit.
    """
    if isinstance(model, keras.layers.Layer):
        return _keras(model, args, kwargs, opened)
    if hasattr(model, "structured_input_signature"):
        return _function(model)
    if getattr(model, "signatures", None):
        return of_signatures(model, _name(model))
    function = _only_function(model)
    if getattr(function, "input_signature", None) is not None:
        return _function(_concrete(function, (), {}))
    return _for_examples(function, function.python_function, args, kwargs, opened, _name(model))


def of_signatures(model: Any, where: str) -> Function:
    """The function of a loaded SavedModel.

    Raises:
        ExportError: it has no signature, or several of which none is the one that is served.
    """
    names = [name for name in getattr(model, "signatures", {}) if not name.startswith("_")]
    if not names:
        raise ExportError(f"{where} has no signatures: save it with tf.saved_model.save(model, path, signatures=...)")
    if PREFERRED not in names and len(names) > 1:
        raise ExportError(
            f"{where} has the signatures {', '.join(sorted(names))}, and none is called {PREFERRED}: compile one of "
            "them, such as tf.saved_model.load(path).signatures[name]"
        )
    return replace(_function(model.signatures[PREFERRED if PREFERRED in names else names[0]]), owner=model)


def of_keras(model: Any) -> Function:
    """A Keras model that says what it takes.

    Raises:
        ExportError: TensorFlow does not trace it.
        InputError: it does not say what it takes.
    """
    return _keras(model, (), {}, ())


def _keras(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], opened: Collection[str]) -> Function:
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            f"Keras runs on {keras.backend.backend()}: models are compiled that run on TensorFlow "
            "(KERAS_BACKEND=tensorflow) or on PyTorch"
        )
    layers = frozenset(layer.name for layer in _layers(model))
    inputs = getattr(model, "inputs", None)
    if inputs:
        names = [_keras_name(tensor, i, len(inputs)) for i, tensor in enumerate(inputs)]
        specs = [tf.TensorSpec(i.shape, i.dtype, _tf_name(name)) for i, name in zip(inputs, names, strict=True)]
        structure = model.input if isinstance(model, keras.Model) and not isinstance(model, keras.Sequential) else None

        def functional(*leaves: Any) -> Any:
            given = leaves[0] if structure is None else tf.nest.pack_sequence_as(structure, leaves)
            return model(given, training=False)

        concrete = _concrete(tf.function(functional, autograph=False), specs, {})
        return _function(concrete, names, layers=layers, is_keras=True)
    takes = inspect.signature(model.call).parameters
    inference = {"training": False} if "training" in takes and "training" not in kwargs else {}

    def call(*given: Any, **named: Any) -> Any:
        return model(*given, **named, **inference)

    if not model.built and (args or kwargs):
        call(*_tensors(args), **_tensors(dict(kwargs)))  # variables are made outside of the function that is traced
    return _for_examples(tf.function(call, autograph=False), model.call, args, kwargs, opened, model.name, layers)


def _layers(model: Any) -> Iterator[Any]:
    yield from model._flatten_layers(include_self=True, recursive=True)


def _keras_name(tensor: Any, place: int, count: int) -> str:
    """The name that the user gave an input; Keras's own count what was made before."""
    if re.fullmatch(r"keras_tensor(_\d+)?|input_layer(_\d+)?", tensor.name):
        return "input" if count == 1 else f"input_{place}"
    return str(tensor.name)


def _only_function(model: Any) -> Any:
    if hasattr(model, "get_concrete_function"):
        return model
    if callable(model) and isinstance(model, tf.Module):
        bound = model.__call__
        return bound if hasattr(bound, "get_concrete_function") else tf.function(bound)
    if not isinstance(model, tf.Module):
        raise InputError(
            f"cannot compile a {_name(model)}: pass a Keras model, a tf.function, a ConcreteFunction, a tf.Module, or "
            "the path of a SavedModel, a .keras or a .tflite file"
        )
    own = {name: value for name in dir(type(model)) if hasattr(value := getattr(model, name), "get_concrete_function")}
    if len(own) != 1:
        which = f"has the functions {', '.join(own)}" if own else "has no tf.function"
        raise ExportError(f"{_name(model)} {which}: pass the one that is to be compiled")
    return next(iter(own.values()))


def _name(model: Any) -> str:
    return str(getattr(model, "__name__", None) or getattr(model, "name", None) or type(model).__name__)


def _for_examples(
    function: Any,
    python: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    opened: Collection[str],
    name: str,
    layers: frozenset[str] = frozenset(),
) -> Function:
    if not args and not kwargs:
        raise InputError(f"{name} does not say what it takes: give example arguments, or an input_signature")
    try:
        bound = inspect.signature(python).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise InputError(f"the arguments do not fit {name}: {error}") from error
    leaf_names = [leaf for key, value in bound.items() for leaf in _leaf_names(key, value)]
    order = iter(_unique(leaf_names))
    given: dict[str, Any] = {}

    def spec(value: Any) -> Any:
        if not is_tensor(value):
            return value
        own = next(order)
        given[own] = value = tf.convert_to_tensor(as_array(value))
        shape = [None if f"{own}:{axis}" in opened else size for axis, size in enumerate(value.shape)]
        return tf.TensorSpec(shape, value.dtype, _tf_name(own))

    described = tf.nest.map_structure(spec, (list(args), _in_order(kwargs, bound)))
    concrete = _concrete(function, *described)
    return _function(concrete, list(given), layers=layers, given=given)


def _in_order(kwargs: Mapping[str, Any], bound: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kwargs[name] for name in (*bound, *kwargs) if name in kwargs}


def _leaf_names(name: str, value: Any) -> Iterator[str]:
    """Names of the tensors in an argument: its own, with the place in it."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _leaf_names(f"{name}_{key}", value[key])
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _leaf_names(f"{name}_{place}", item)
    elif is_tensor(value):
        yield name


def is_tensor(value: Any) -> bool:
    """Whether a value is an array or tensor; numbers of Python are parts of a function."""
    return isinstance(value, np.ndarray | np.generic | tf.Tensor | tf.Variable) or (
        type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")
    )


def as_array(value: Any) -> Any:
    """A tensor of any framework as an array; others are as they are."""
    if hasattr(value, "detach"):
        return to_numpy(value)
    return np.asarray(value) if is_tensor(value) else value


def _tensors(values: Any) -> Any:
    return tf.nest.map_structure(lambda v: tf.convert_to_tensor(as_array(v)) if is_tensor(v) else v, values)


def _concrete(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return function.get_concrete_function(*args, **kwargs)
    except Exception as error:  # whatever the model's own code raises
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[-1] if type(error).__module__.startswith("tensorflow") and lines else " ".join(lines)
        raise ExportError(f"TensorFlow does not trace {_name(function)}: {type(error).__name__}: {said}") from error


def _function(
    concrete: Any,
    names: Sequence[str] | None = None,
    *,
    layers: frozenset[str] = frozenset(),
    is_keras: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Function:
    specs = [s for s in tf.nest.flatten(concrete.structured_input_signature) if isinstance(s, tf.TensorSpec)]
    own = names if names is not None else [spec.name or f"input_{place}" for place, spec in enumerate(specs)]
    results = _structure(concrete.structured_outputs)
    return Function(concrete, tuple(_unique(own)), results, layers, is_keras, given)


def _structure(value: Any) -> Structure:
    if value is None:
        return Structure("none")
    if isinstance(value, Mapping):
        keys = sorted(value)  # the order in which TensorFlow has the leaves
        return Structure("dict", tuple(_structure(value[key]) for key in keys), tuple(map(str, keys)))
    if isinstance(value, list | tuple):
        items = tuple(map(_structure, value))
        return Structure("tuple" if isinstance(value, tuple) else "list", items)
    return Structure("leaf")


def _unique(names: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    return [unique(name, taken) for name in names]


def _tf_name(name: str) -> str:
    """As TensorFlow takes names."""
    plain = re.sub(r"[^\w.\\/>-]", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z0-9.]", plain) else f"n{plain}"
