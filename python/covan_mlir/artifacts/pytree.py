"""Pytrees that survive in an artifact: nested containers of leaves, described by a JSON-able specification.

torch's own pytree module is the authority on what a container is (``None`` is a leaf, dicts keep their order); this
one exists because an artifact must run, and return the right structure, where torch is not installed. Container
types registered with torch by others (a Hugging Face ``ModelOutput``) go through torch's registry.
"""

from __future__ import annotations

import collections
import json
import logging
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from covan_mlir.artifacts.schema import AnyTree, StoredTree

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tree:
    """Structure of a pytree.

    Attributes:
        kind: ``leaf``, ``tuple``, ``list``, ``dict``, ``OrderedDict``, ``defaultdict``, ``deque``, ``namedtuple`` or
            ``custom``.
        children: one tree per element, in order.
        keys: keys of a mapping, fields of a namedtuple, maxlen of a deque (one element).
        name: qualified name of a namedtuple, the registered name of a custom container, or a defaultdict's factory.
        context: a custom container's context as torch's registry dumps it.
    """

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    name: str = ""
    context: str = ""

    @property
    def leaf_count(self) -> int:
        return 1 if self.kind == "leaf" else sum(child.leaf_count for child in self.children)

    def stored(self) -> AnyTree:
        """As the artifact holds it."""
        if self.kind == "leaf":
            return "*"
        return StoredTree(
            self.kind, tuple(child.stored() for child in self.children), self.keys, self.name, self.context
        )

    @staticmethod
    def of(stored: AnyTree) -> Tree:
        """The inverse of `stored`."""
        if not isinstance(stored, StoredTree):
            return LEAF
        return Tree(stored.kind, tuple(map(Tree.of, stored.children)), stored.keys, stored.name, stored.context)

    def __str__(self) -> str:
        inner = [str(child) for child in self.children]
        match self.kind:
            case "leaf":
                return "*"
            case "tuple":
                return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
            case "list" | "deque":
                return f"[{', '.join(inner)}]"
            case "dict" | "OrderedDict" | "defaultdict":
                return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(self.keys, inner, strict=True)) + "}"
            case _:
                return f"{self.name}({', '.join(inner)})"


LEAF = Tree("leaf")
_FACTORIES: dict[str, Callable[[], Any]] = {f.__name__: f for f in (list, dict, set, int, float, str, tuple)}


def _registry() -> Any | None:
    """torch's pytree module where torch is loaded: only then can a value be of a type that it registers."""
    return sys.modules.get("torch.utils._pytree")


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """-> (leaves in order, structure). A type that is no container is a leaf, as in torch."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Tree:
    kind = type(value)
    if kind is tuple or kind is list:
        return Tree(kind.__name__, tuple(_flatten(item, leaves) for item in value))
    if kind is dict or kind is OrderedDict or kind is defaultdict:
        children = tuple(_flatten(item, leaves) for item in value.values())
        factory = getattr(value, "default_factory", None)
        return Tree(kind.__name__, children, tuple(value), getattr(factory, "__name__", ""))
    if kind is deque:
        return Tree("deque", tuple(_flatten(item, leaves) for item in value), (value.maxlen,))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        children = tuple(_flatten(item, leaves) for item in value)
        return Tree("namedtuple", children, tuple(value._fields), _qualified(kind))
    registry = _registry()
    if registry is not None and kind in registry.SUPPORTED_NODES:
        parts, context = registry.SUPPORTED_NODES[kind].flatten_fn(value)
        children = tuple(_flatten(item, leaves) for item in parts)
        return Tree("custom", children, (), _registered_name(registry, kind), _dump(registry, kind, context))
    leaves.append(value)
    return LEAF


def flatten_like(tree: Tree, value: Any, where: str) -> list[Any]:
    """Leaves of ``value``, which must have the structure ``tree`` (mappings may order their keys otherwise).

    Raises:
        ValueError: naming the place (``where`` followed by indices and keys) that does not fit.
    """
    leaves: list[Any] = []
    _flatten_like(tree, value, where, leaves)
    return leaves


def _flatten_like(tree: Tree, value: Any, where: str, leaves: list[Any]) -> None:
    kind = tree.kind
    if kind == "leaf":
        leaves.append(value)
    elif kind in ("tuple", "list", "deque", "namedtuple"):
        if not isinstance(value, tuple | list | deque):
            raise ValueError(f"{where} is a {type(value).__name__}; expected a {kind} of {len(tree.children)}")
        if len(value) != len(tree.children):
            raise ValueError(f"{where} has {len(value)} elements; expected {len(tree.children)}")
        for i, (child, item) in enumerate(zip(tree.children, value, strict=True)):
            _flatten_like(child, item, f"{where}[{i}]", leaves)
    elif kind in ("dict", "OrderedDict", "defaultdict"):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is a {type(value).__name__}; expected a dict with keys {list(tree.keys)}")
        if value.keys() != set(tree.keys):
            raise ValueError(f"{where} has keys {list(value)}; expected {list(tree.keys)}")
        for key, child in zip(tree.keys, tree.children, strict=True):
            _flatten_like(child, value[key], f"{where}[{key!r}]", leaves)
    else:
        inner, actual = flatten(value)
        if actual != tree:
            raise ValueError(f"{where} has the structure {actual}; expected {tree}")
        leaves.extend(inner)


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The value of structure ``tree`` whose leaves are ``leaves``."""
    return builder(tree)(iter(leaves))


Build = Callable[[Iterator[Any]], Any]


def builder(tree: Tree) -> Build:
    """A function from an iterator over leaves to the value: resolves types once, for use in a hot path."""
    if tree.kind == "leaf":
        return next
    children = [builder(child) for child in tree.children]
    keys = tree.keys
    match tree.kind:
        case "tuple":
            return lambda leaves: tuple([build(leaves) for build in children])
        case "list":
            return lambda leaves: [build(leaves) for build in children]
        case "dict":
            return lambda leaves: {key: build(leaves) for key, build in zip(keys, children, strict=True)}
        case "defaultdict":
            factory = _FACTORIES.get(tree.name)
            return lambda leaves: defaultdict(
                factory, ((key, build(leaves)) for key, build in zip(keys, children, strict=True))
            )
        case "OrderedDict":
            return lambda leaves: OrderedDict((key, build(leaves)) for key, build in zip(keys, children, strict=True))
        case "deque":
            return lambda leaves: deque((build(leaves) for build in children), maxlen=keys[0])
        case "namedtuple":
            return _namedtuple_builder(tree, children)
        case "custom":
            return _custom_builder(tree, children)
    raise ValueError(f"unknown container kind {tree.kind!r}")


def _qualified(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _namedtuple_builder(tree: Tree, children: list[Build]) -> Build:
    module, _, path = tree.name.partition(":")
    named: Any = sys.modules.get(module)  # never imported here: an artifact must not make the loader run code
    for part in path.split("."):
        named = getattr(named, part, None)
    known = isinstance(named, type) and getattr(named, "_fields", None) == tree.keys
    make = named if known else collections.namedtuple(path.rsplit(".", 1)[-1], tree.keys)
    return lambda leaves: make(*[build(leaves) for build in children])


def _registered_name(registry: Any, kind: type) -> str:
    known = registry.SUPPORTED_SERIALIZED_TYPES.get(kind)
    name = getattr(known, "serialized_type_name", None)
    unnamed = name is None or name == registry.NO_SERIALIZED_TYPE_NAME_FOUND
    return _qualified(kind) if unnamed else str(name)


def _dump(registry: Any, kind: type, context: Any) -> str:
    known = registry.SUPPORTED_SERIALIZED_TYPES.get(kind)
    dump = getattr(known, "to_dumpable_context", None)
    return json.dumps(dump(context) if dump else context, default=repr)


def _custom_builder(tree: Tree, children: list[Build]) -> Build:
    registry: Any = _registry()
    for kind in registry.SUPPORTED_NODES if registry is not None else ():
        if _registered_name(registry, kind) == tree.name:
            known = registry.SUPPORTED_SERIALIZED_TYPES.get(kind)
            load = getattr(known, "from_dumpable_context", None)
            context = json.loads(tree.context)
            context = load(context) if load else context
            unflatten_fn = registry.SUPPORTED_NODES[kind].unflatten_fn
            return lambda leaves: unflatten_fn([build(leaves) for build in children], context)
    log.warning(
        "outputs of type %s are returned as a dict or list, because that type is not registered with torch's pytree "
        "here: import the library that defines it before loading",
        tree.name,
    )
    keys = json.loads(tree.context) if tree.context else None
    if isinstance(keys, list) and len(keys) == len(children) and all(isinstance(key, str) for key in keys):
        return lambda leaves: {key: build(leaves) for key, build in zip(keys, children, strict=True)}
    return lambda leaves: [build(leaves) for build in children]
