"""What the JSON members of an artifact must look like (docs/artifact.md).

They come from files, so nothing is taken on trust: a value of the wrong kind, an index out of range or a key too many
is a `SchemaError` here and not a surprise in the code that uses it. The writer checks its own output in the same way,
so that no file is written that cannot be read.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NoReturn

from covan_mlir.words import is_group, is_tag

DEVICES = ("auto", "local-task", "local-sync")

# dtype as torch spells it -> bytes per element
ITEM_SIZES: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}

_TREE_KINDS = frozenset({"tuple", "list", "dict", "OrderedDict", "defaultdict", "deque", "namedtuple", "custom"})
_KEYED = frozenset({"dict", "OrderedDict", "defaultdict", "namedtuple"})
_SCALARS = (str, int, float, bool, type(None))


class SchemaError(Exception):
    """A JSON value does not have the form that the format demands; the message says where."""


Check = Callable[[Any, str], None]


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """JSON without non-finite numbers.

    Raises:
        SchemaError: the value is no JSON.
    """
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(str(error)) from error
    return text.encode("ascii")


def loads(data: bytes) -> Any:
    """The value of a JSON text without non-finite numbers.

    Raises:
        SchemaError: the text is no such JSON.
    """
    try:
        return json.loads(data, parse_constant=_not_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from error


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def _fail(where: str, problem: str) -> NoReturn:
    raise SchemaError(f"{where} {problem}")


def _exactly(*kinds: type) -> Check:
    """Of these types and no subclass: ``True`` is no size."""

    def check(value: Any, where: str) -> None:
        if type(value) not in kinds:
            _fail(where, f"is {_short(value)}, not {' or '.join(kind.__name__ for kind in kinds)}")

    return check


def _natural(value: Any, where: str) -> None:
    if type(value) is not int or value < 0:
        _fail(where, f"is {_short(value)}, not a number ≥ 0")


def _one_of(*values: str) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not str or value not in values:
            _fail(where, f"is {_short(value)}, not one of {', '.join(values)}")

    return check


def _below(limit: int) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not int or not 0 <= value < limit:
            _fail(where, f"is {_short(value)}, not an index below {limit}")

    return check


def _among(known: Set[int], what: str) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not int or value not in known:
            _fail(where, f"is {_short(value)}, not the index of {what}")

    return check


def _optional(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def _items(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) not in (list, tuple):
            _fail(where, f"is {_short(value)}, not a list")
        for index, item in enumerate(value):
            inner(item, f"{where}[{index}]" if index < 10 else f"{where}[…]")  # index strings are slow to make

    return check


def _row(*columns: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) not in (list, tuple) or len(value) != len(columns):
            _fail(where, f"is {_short(value)}, not a list of {len(columns)}")
        for inner, item in zip(columns, value, strict=True):
            inner(item, where)

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    optional = optional or {}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            _fail(where, f"is {_short(value)}, not an object")
        if missing := required.keys() - value.keys():
            _fail(where, f"has no {', '.join(sorted(missing))}")
        if strange := value.keys() - required.keys() - optional.keys():
            _fail(where, f"has the unknown key {_short(sorted(map(str, strange))[0])}")
        for key, item in value.items():
            (required.get(key) or optional[key])(item, f"{where}.{key}")

    return check


def _map_of(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            _fail(where, f"is {_short(value)}, not an object")
        for key, item in value.items():
            _text(key, f"a key of {where}")
            inner(item, f"{where}.{key}")

    return check


def _anything(value: Any, where: str) -> None:
    """JSON whose meaning is not the format's."""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_text = _exactly(str)
_int = _exactly(int)
_bool = _exactly(bool)


def _digest(value: Any, where: str) -> None:
    if type(value) is not str or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        _fail(where, f"is {_short(value)}, not a SHA-256 in lower-case hex")


_BLOB = _object(
    {"name": _text, "member": _text, "dtype": _one_of(*ITEM_SIZES), "shape": _items(_natural)},
)
_MANIFEST = _object(
    {
        "format": _int,
        "covan": _text,
        "target": _text,
        "device": _one_of(*DEVICES),
        "versions": _map_of(_text),
        "inputs": _items(_text),
        "outputs": _items(_text),
        "info": _map_of(_anything),
        "members": _map_of(_object({"size": _natural, "sha256": _digest})),
        "weights": _items(_BLOB),
        "states": _items(_BLOB),
    }
)


def check_manifest(manifest: Any) -> None:
    """Raises `SchemaError` unless it is a manifest whose blobs have the sizes that their dtypes and shapes give."""
    _MANIFEST(manifest, "manifest.json")
    members = manifest["members"]
    for folder in ("weights", "states"):
        rows = manifest[folder]
        expected = [f"{folder}/{index}.bin" for index in range(len(rows))]
        if [row["member"] for row in rows] != expected:
            _fail(f"manifest.json.{folder}", f"does not name the members {folder}/0.bin, … in order")
        if len({row["name"] for row in rows}) != len(rows):
            _fail(f"manifest.json.{folder}", "gives two of them the same name")
        for row in rows:
            size = math.prod(row["shape"]) * ITEM_SIZES[row["dtype"]]
            if members.get(row["member"], {}).get("size") != size:
                _fail(
                    f"manifest.json.{folder}", f"{row['name']!r} does not have the {size} bytes of its shape and dtype"
                )


def _tree(value: Any, where: str) -> None:
    stack = [value]  # no recursion: the depth is the file's
    while stack:
        node = stack.pop()
        if node == "*":
            continue
        _TREE(node, where)
        if node["kind"] not in _TREE_KINDS:
            _fail(where, f"has the unknown container {_short(node['kind'])}")
        keys = list(node.get("keys", ()))
        count = len(node["children"]) if node["kind"] in _KEYED else node["kind"] == "deque"
        if len(keys) != count or len(set(keys)) != len(keys):
            _fail(where, f"has a {node['kind']} of {len(node['children'])} with the keys {_short(keys)}")
        if node["kind"] == "namedtuple":
            path = re.split(r"[.:]", node.get("name", ""))
            if not all(_is_name(name) for name in [path[-1], *keys]) or any(key.startswith("_") for key in keys):
                _fail(where, f"has a namedtuple {_short(node.get('name'))} with the fields {_short(keys)}")
        elif node["kind"] == "deque" and keys[0] is not None:
            _natural(keys[0], f"{where}: the length of a deque")
        elif node["kind"] == "custom":
            loads(node.get("context", "").encode())
        stack.extend(node["children"])


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isidentifier() and not keyword.iskeyword(value)


_TREE = _object(
    {"kind": _text, "children": _items(_anything)},
    {"keys": _items(_exactly(*_SCALARS)), "name": _text, "context": _text},
)
_TENSOR = _object(
    {"kind": _text, "name": _text, "dtype": _one_of(*ITEM_SIZES), "shape": _items(_exactly(int, str))},
    {"mutated": _bool},
)
_SCALAR = _object({"kind": _text, "name": _text, "dtype": _one_of("int", "float", "bool"), "symbol": _text})
_NON_FINITE = _object({"float": _one_of("inf", "-inf", "nan")})


def _value(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        _NON_FINITE(value, where)
    else:
        _exactly(*_SCALARS)(value, where)


_CONSTANT = _object({"kind": _text, "name": _text, "value": _value})
_LEAVES = {"tensor": _TENSOR, "scalar": _SCALAR, "constant": _CONSTANT}


def _leaf(value: Any, where: str) -> None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in tuple(_LEAVES):
        _fail(where, f"is {_short(value)}, not a tensor, scalar or constant")
    _LEAVES[kind](value, where)


_SIGNATURE = _object(
    {
        "format": _int,
        "function": _text,
        "in_tree": _tree,
        "out_tree": _tree,
        "inputs": _items(_leaf),
        "outputs": _items(_leaf),
        "states": _items(_object({"name": _text, "dtype": _one_of(*ITEM_SIZES), "shape": _items(_natural)})),
        "results": _items(_row(_one_of("state", "input", "output"), _natural)),
        "parameters": _items(_text),
        "symbols": _map_of(_row(_optional(_int), _optional(_int))),
    }
)


def check_signature(row: Any, form: int) -> None:
    """Raises `SchemaError` unless ``row`` is a signature of format ``form`` whose parts fit together."""
    _SIGNATURE(row, "signature.json")
    _format(row, form, "signature.json")
    for tree, leaves in (("in_tree", "inputs"), ("out_tree", "outputs")):
        if _leaf_count(row[tree]) != len(row[leaves]):
            _fail(f"signature.json.{tree}", f"has {_leaf_count(row[tree])} leaves for {len(row[leaves])} {leaves}")
    sizes = {"state": len(row["states"]), "input": len(row["inputs"]), "output": len(row["outputs"])}
    for kind, index in row["results"]:
        if index >= sizes[kind]:
            _fail("signature.json.results", f"names {kind} {index} of {sizes[kind]}")
    for leaf in (*row["inputs"], *row["outputs"]):
        if any(type(size) is int and size < 0 for size in leaf.get("shape", ())):
            _fail("signature.json", f"{leaf['name']!r} has a negative size")


def _leaf_count(tree: Any) -> int:
    count, stack = 0, [tree]
    while stack:
        node = stack.pop()
        if node == "*":
            count += 1
        else:
            stack.extend(node["children"])
    return count


def _format(row: Mapping[str, Any], form: int, where: str) -> None:
    if row["format"] != form:
        _fail(where, f"has the format {row['format']}, not {form}")


def check_lineage(row: Any, form: int) -> None:
    """Raises `SchemaError` unless ``row`` is a lineage of format ``form`` whose indices all point at something."""
    _object(
        {
            "format": _int,
            "pool": _items(_anything),
            "actions": _items(_anything),
            "parts": _items(_anything),
            "sites": _items(_anything),
            "commands": _items(_anything),
            "fates": _items(_anything),
            "part_fates": _items(_anything),
            "history": _items(_anything),
            "results": _items(_row(_one_of("p", "a", "w"), _exactly(int, str))),
            "phases": _items(_row(_anything, _anything)),
            "groups": _items(_anything),
            "tags": _items(_anything),
        }
    )(row, "lineage.json")
    _format(row, form, "lineage.json")
    texts = frozenset(_indices(row["pool"], lambda item: type(item) is str))
    frames = frozenset(_indices(row["pool"], _is_frame))
    text, frame = _among(texts, "a text"), _among(frames, "a source frame")
    action = _below(len(row["actions"]))
    flag = _below(2)
    call = _row(_text, text, text, _items(frame), _items(text), _items(action), flag, flag)
    _items(call)(row["actions"], "lineage.json.actions")
    _items(_row(_natural, action, _text, text, _items(text), flag, _int, _text))(row["parts"], "lineage.json.parts")
    known: set[int] = set()
    for id_, *_, twin, called in sorted(row["parts"], key=lambda part: part[0]):  # a part reads earlier ones
        where = f"lineage.json.parts ({id_})"
        _arguments(called, known, where)
        known.add(id_)
        if twin != -1:
            _among(known, "a part before")(twin, where)
    ids = frozenset(known)
    if len(ids) != len(row["parts"]):
        _fail("lineage.json.parts", "gives two parts the same id")
    site, part = _below(len(row["sites"])), _among(ids, "a part")
    phase, kind = _one_of("call", "init"), _one_of("dispatch", "transfer")
    relation = (_items(action), _items(part), _items(site), _items(part), _items(part))
    _items(_row(text, phase, kind, *relation, _optional(_natural)))(row["sites"], "lineage.json.sites")
    _items(_items(_optional(site)))(row["commands"], "lineage.json.commands")
    became = _one_of("dispatched", "folded", "merged", "view", "dead")
    _items(_row(became, _items(site), text, _optional(action)))(row["fates"], "lineage.json.fates")
    if len(row["fates"]) not in (0, len(row["actions"])):
        _fail("lineage.json.fates", f"has {len(row['fates'])} fates for {len(row['actions'])} actions")
    _items(_row(part, became, _items(site), text, _optional(part)))(row["part_fates"], "lineage.json.part_fates")
    changed = _row(_natural, _optional(_items(_row(text, _natural))))
    _items(_row(text, _items(changed)))(row["history"], "lineage.json.history")
    _items(_row(_call, _one_of("block", "function"), _items(action)))(row["groups"], "lineage.json.groups")
    _items(_row(_tag, _items(action)))(row["tags"], "lineage.json.tags")
    for kind, name in row["results"]:
        _operand({kind: name}, ids, "lineage.json.results")
    _phases(row, text)
    for key in ("groups", "tags"):
        if len({name for name, *_ in row[key]}) != len(row[key]):
            _fail(f"lineage.json.{key}", "gives one name twice")


def _arguments(text: str, parts: Set[int], where: str) -> None:
    """Arguments of a part (`covan_mlir.arguments`)."""
    value = loads(text.encode())
    if type(value) is not list or [type(item) for item in value] != [list, list]:
        _fail(where, f"is called with {_short(value)}, not with lists of arguments and of named ones")
    _items(_row(_text, _anything))(value[1], where)
    stack = [*value[0], *(item for _, item in value[1])]
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack += item
        elif type(item) is dict:
            _operand(item, parts, where)


def _operand(item: dict[str, Any], parts: Set[int], where: str) -> None:
    kind = next(iter(item), "")
    if kind not in _OPERANDS or item.keys() - {kind, "of"} or type(item.get("of", "")) is not str:
        _fail(where, f"has the argument {_short(item)}")
    _OPERANDS[kind](item[kind], where)
    if kind == "p":
        _among(parts, "a part")(item[kind], where)


_OPERANDS: Mapping[str, Check] = {
    "p": _natural,
    "a": _natural,
    "w": _text,
    "t": _text,
    "f": _one_of("inf", "-inf", "nan"),
    "d": _text,
    "s": _row(*[_optional(_int)] * 3),
    "r": _text,
}


def _phases(row: Mapping[str, Any], text: Check) -> None:
    """The graphs of `covan_mlir.phases`: a node reads what nodes before or after it give."""
    started, last = False, 0
    for step, graph in row["phases"]:
        text(step, "lineage.json.phases")
        if graph is None:
            if not started:
                _fail("lineage.json.phases", "starts without a graph")
            continue
        _row(_items(_anything), _items(_anything))(graph, "lineage.json.phases")
        started = True
        results = [len(node[3]) if type(node) is list and len(node) == 5 else 0 for node in graph[0]]

        def value(item: Any, where: str, results: list[int] = results) -> None:
            if type(item) is list and len(item) == 2:
                _below(len(results))(item[0], where)
                _below(results[item[0]])(item[1], where)
            elif type(item) is int and item >= 0:
                _below(len(results))(item, where)
                _below(results[item])(0, where)
            elif item is not None and item != [] and type(item) is not int:
                _fail(where, f"is {_short(item)}, not a value")

        chain = _items(_link)
        _items(_row(text, _below(4), _items(value), _items(chain), _items(_natural)))(graph[0], "lineage.json.phases")
        _items(value)(graph[1], "lineage.json.phases")
        last = len(graph[0])
    for site in row["sites"]:
        if site[-1] is not None and (not row["phases"] or site[-1] >= last):
            _fail("lineage.json.sites", f"names node {site[-1]}, which the program does not have")


def _link(value: Any, where: str) -> None:
    _items(_natural)(value, where)
    if not value or value[0] > 3:
        _fail(where, f"is {_short(value)}, not a kind of link and parts")


def _call(value: Any, where: str) -> None:
    name, _, number = value.rpartition("@") if type(value) is str else ("", "", "")
    if not is_group(name) or not (number.isascii() and number.isdigit()):
        _fail(where, f"has a call named {_short(value)}, not such as 'attention@0'")


def _tag(value: Any, where: str) -> None:
    if not is_tag(value):
        _fail(where, f"has the tag {_short(value)}, which is not printable")


def _indices(pool: Iterable[Any], wanted: Callable[[Any], bool]) -> Iterable[int]:
    return (index for index, item in enumerate(pool) if wanted(item))


def _is_frame(item: Any) -> bool:
    return type(item) in (list, tuple) and [type(part) for part in item] == [str, int, str, bool]
