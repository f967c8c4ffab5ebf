"""Pytrees that survive in an artifact: nested containers of leaves, described by a JSON-able specification.

torch's own pytree module is the authority on what a container is (``None`` is a leaf, dicts keep their order); this
one exists because an artifact must run, and return the right structure, where torch is not installed.

Where a value was flattened in this process, its type rebuilds it. What comes from a file is built here, from a closed
list of kinds: torch's registry holds deserialisers that import what a text names, and none of them sees a file's text.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from covan_mlir.artifacts.schema import AnyTree, StoredTree
from covan_mlir.errors import CovanError

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
        rebuild: of a namedtuple or a custom container that was flattened in this process: its value from those of its
            children. Stays in the process.
    """

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    name: str = ""
    context: str = ""
    rebuild: Callable[[list[Any]], Any] | None = field(default=None, compare=False, repr=False)

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
        return Tree("namedtuple", children, tuple(value._fields), _qualified(kind), rebuild=lambda items: kind(*items))
    registry = _registry()
    if registry is not None and kind in registry.SUPPORTED_NODES:
        parts, context = registry.SUPPORTED_NODES[kind].flatten_fn(value)
        children = tuple(_flatten(item, leaves) for item in parts)
        unflatten_fn = registry.SUPPORTED_NODES[kind].unflatten_fn
        return Tree(
            "custom",
            children,
            (),
            _registered_name(registry, kind),
            _dump(registry, kind, context),
            lambda items: unflatten_fn(items, context),
        )
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
    elif type(value) in (dict, list) and type(value).__name__ == _plain(tree).kind:  # stands for it
        _flatten_like(_plain(tree), value, where, leaves)
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
    if (rebuild := tree.rebuild) is not None:
        return lambda leaves: rebuild([build(leaves) for build in children])
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
    named = _class_named(tree.name)
    if named is not None and issubclass(named, tuple) and getattr(named, "_fields", None) == tree.keys:
        # By tuple's way: the class's own could do anything.
        return lambda leaves: tuple.__new__(named, [build(leaves) for build in children])
    make = _new_namedtuple(tree.name.rpartition(":")[2].rpartition(".")[2], tree.keys)
    return lambda leaves: make(*[build(leaves) for build in children])


def _new_namedtuple(name: str, fields: Sequence[str]) -> Callable[..., Any]:
    return collections.namedtuple(name, fields)


def _class_named(name: str) -> type | None:
    """The class of a qualified name where it is defined already: nothing is imported, no module's own ways of finding
    an attribute are asked, which import as well."""
    module, _, path = name.partition(":")
    holder: Any = sys.modules.get(module)
    for part in path.split("."):
        if not isinstance(holder, ModuleType | type):
            return None
        holder = object.__getattribute__(holder, "__dict__").get(part)
    return holder if isinstance(holder, type) else None


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
    """Of a file's tree: dataclasses that this process registered with torch, by their fields; torch's own named
    results; a dict or a list for all else."""
    plain = _plain(tree)
    kind = _registered_type(tree.name)
    if kind is not None and kind.__module__ == "torch.return_types":
        if getattr(kind, "n_sequence_fields", None) == len(children):
            return lambda leaves: kind([build(leaves) for build in children])
    elif kind is not None and dataclasses.is_dataclass(kind):
        fields = {of_kind.name for of_kind in dataclasses.fields(kind) if of_kind.init}
        names, absent = (plain.keys, ()) if plain.keys else _fields(tree)
        if len(names) == len(children) and fields.issuperset((*names, *absent)):
            nothing: dict[str, Any] = dict.fromkeys(absent)
            return lambda leaves: _dataclass_of(
                kind, nothing | {name: build(leaves) for name, build in zip(names, children, strict=True)}
            )
    log.warning(
        "outputs of type %.200s are returned as a %s, because no container of that type is registered with torch's "
        "pytree here: import the library that defines it before loading",
        tree.name,
        plain.kind,
    )
    return builder(plain)


def _plain(tree: Tree) -> Tree:
    """What stands for a custom container: a dict, where its context is nothing but keys, or a list."""
    match json.loads(tree.context) if tree.context else None:
        case [*keys] if all(isinstance(key, str) for key in keys) and len(tree.children) == len(keys) == len(set(keys)):
            return Tree("dict", tree.children, tuple(keys))
    return Tree("list", tree.children)


def _fields(tree: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of torch's own way to register a dataclass: its context is the fields that have a value, and those that are
    None."""
    match json.loads(tree.context) if tree.context else None:
        case [[*present], [*absent]] if all(isinstance(name, str) for name in (*present, *absent)):
            return tuple(present), tuple(absent)
    return (), ()


def _registered_type(name: str) -> type | None:
    registry = _registry()
    for kind in registry.SUPPORTED_NODES if registry is not None else ():
        if isinstance(kind, type) and _registered_name(registry, kind) == name:
            return kind
    return None


def _dataclass_of(kind: type, fields: dict[str, Any]) -> Any:
    try:
        return kind(**fields)
    except Exception as error:  # its own code
        raise CovanError(f"the result cannot be a {kind.__qualname__}, which refuses: {error}") from error
