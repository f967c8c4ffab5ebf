"""What the manifest and the signature of an artifact must look like (docs/artifact.md).

The writer checks its own output in the same way, so that no file is written that cannot be read.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from typing import Any

from covan_mlir.artifacts import json_checks as want

DEVICES = ("auto", "local-task", "local-sync", "openmp")
"""Who runs programs for CPUs; see `covan_mlir.CompileOptions`."""

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


def _digest(value: Any, where: str) -> None:
    if type(value) is not str or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        want.fail(where, f"is {want.short(value)}, not a SHA-256 in lower-case hex")


_BLOB = want.mapping(
    {"name": want.text, "member": want.text, "dtype": want.one_of(*ITEM_SIZES), "shape": want.items(want.natural)},
)
_AMOUNT = want.exactly(int, float)
_WAY = want.one_of("at hand", "in place", "split", "recompute")
_TEXTS = want.items(want.text)
_COST = want.mapping(
    {
        "chosen": _WAY,
        "places": want.items(want.mapping({"way": _WAY, "bytes": _AMOUNT, "flops": _AMOUNT, "seconds": _AMOUNT})),
        "before": _TEXTS,
        "after": _TEXTS,
        "bytes": _AMOUNT,
        "flops": _AMOUNT,
        "seconds": _AMOUNT,
    }
)
_ATTACHED = want.mapping(
    {
        "name": want.text,
        "target": want.text,
        "mode": want.one_of("tap", "replace"),
        "actions": _TEXTS,
        "again": _TEXTS,
        "types": _TEXTS,
        "sites": want.items(want.natural),
        "fate": want.one_of("dispatched", "view", "merged"),
        "source": want.text,
        "constants": want.map_of(_digest),
        "sha256": _digest,
        "cost": _COST,
    }
)
_VARIANT = want.mapping(
    {"target": want.text, "requires": want.map_of(want.anything), "info": want.map_of(want.anything)},
    {"attachments": want.items(_ATTACHED)},
)
_MANIFEST = want.mapping(
    {
        "format": want.integer,
        "covan": want.text,
        "device": want.one_of(*DEVICES),
        "versions": want.map_of(want.text),
        "inputs": want.items(want.text),
        "outputs": want.items(want.text),
        "variants": want.items(_VARIANT),
        "members": want.map_of(want.mapping({"size": want.natural, "sha256": _digest})),
        "weights": want.items(_BLOB),
        "states": want.items(_BLOB),
    }
)


def check_manifest(manifest: Any) -> None:
    """Raises `SchemaError` unless it is a manifest whose blobs have the sizes that their dtypes and shapes give."""
    _MANIFEST(manifest, "manifest.json")
    if not manifest["variants"]:
        want.fail("manifest.json.variants", "names no program")
    members = manifest["members"]
    for folder in ("weights", "states"):
        rows = manifest[folder]
        expected = [f"{folder}/{index}.bin" for index in range(len(rows))]
        if [row["member"] for row in rows] != expected:
            want.fail(f"manifest.json.{folder}", f"does not name the members {folder}/0.bin, … in order")
        if len({row["name"] for row in rows}) != len(rows):
            want.fail(f"manifest.json.{folder}", "gives two of them the same name")
        for row in rows:
            size = math.prod(row["shape"]) * ITEM_SIZES[row["dtype"]]
            if members.get(row["member"], {}).get("size") != size:
                want.fail(
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
            want.fail(where, f"has the unknown container {want.short(node['kind'])}")
        keys = list(node.get("keys", ()))
        count = len(node["children"]) if node["kind"] in _KEYED else node["kind"] == "deque"
        if len(keys) != count or len(set(keys)) != len(keys):
            want.fail(where, f"has a {node['kind']} of {len(node['children'])} with the keys {want.short(keys)}")
        if node["kind"] == "namedtuple":
            path = re.split(r"[.:]", node.get("name", ""))
            if not all(_is_name(name) for name in [path[-1], *keys]) or any(key.startswith("_") for key in keys):
                want.fail(where, f"has a namedtuple {want.short(node.get('name'))} with the fields {want.short(keys)}")
        elif node["kind"] == "deque" and keys[0] is not None:
            want.natural(keys[0], f"{where}: the length of a deque")
        elif node["kind"] == "custom":
            want.loads(node.get("context", "").encode())
        stack.extend(node["children"])


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isidentifier() and not keyword.iskeyword(value)


_TREE = want.mapping(
    {"kind": want.text, "children": want.items(want.anything)},
    {"keys": want.items(want.exactly(*_SCALARS)), "name": want.text, "context": want.text},
)
_TENSOR = want.mapping(
    {
        "kind": want.text,
        "name": want.text,
        "dtype": want.one_of(*ITEM_SIZES),
        "shape": want.items(want.exactly(int, str)),
    },
    {"mutated": want.boolean},
)
_SCALAR = want.mapping(
    {"kind": want.text, "name": want.text, "dtype": want.one_of("int", "float", "bool"), "symbol": want.text}
)
_NON_FINITE = want.mapping({"float": want.one_of("inf", "-inf", "nan")})


def _value(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        _NON_FINITE(value, where)
    else:
        want.exactly(*_SCALARS)(value, where)


_CONSTANT = want.mapping({"kind": want.text, "name": want.text, "value": _value})
_LEAVES = {"tensor": _TENSOR, "scalar": _SCALAR, "constant": _CONSTANT}


def _leaf(value: Any, where: str) -> None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in tuple(_LEAVES):
        want.fail(where, f"is {want.short(value)}, not a tensor, scalar or constant")
    _LEAVES[kind](value, where)


_SIGNATURE = want.mapping(
    {
        "format": want.integer,
        "function": want.text,
        "in_tree": _tree,
        "out_tree": _tree,
        "inputs": want.items(_leaf),
        "outputs": want.items(_leaf),
        "states": want.items(
            want.mapping({"name": want.text, "dtype": want.one_of(*ITEM_SIZES), "shape": want.items(want.natural)})
        ),
        "results": want.items(want.row(want.one_of("state", "input", "output", "tap"), want.natural)),
        "parameters": want.items(want.text),
        "symbols": want.map_of(want.row(want.optional(want.integer), want.optional(want.integer))),
    },
    {"taps": want.items(want.mapping({"name": want.text, "tree": _tree, "leaves": want.items(_leaf)}))},
)


def check_signature(row: Any, form: int) -> None:
    """Raises `SchemaError` unless ``row`` is a signature of format ``form`` whose parts fit together."""
    _SIGNATURE(row, "signature.json")
    want.form(row, form, "signature.json")
    for tree, leaves in (("in_tree", "inputs"), ("out_tree", "outputs")):
        if _leaf_count(row[tree]) != len(row[leaves]):
            want.fail(f"signature.json.{tree}", f"has {_leaf_count(row[tree])} leaves for {len(row[leaves])} {leaves}")
    taps = row.get("taps", ())
    tapped = [leaf for tap in taps for leaf in tap["leaves"]]
    for tap in taps:
        if _leaf_count(tap["tree"]) != len(tap["leaves"]):
            want.fail("signature.json.taps", f"gives {tap['name']!r} other leaves than its structure has")
    if len({tap["name"] for tap in taps}) != len(taps):
        want.fail("signature.json.taps", "gives two of them the same name")
    if sorted(index for kind, index in row["results"] if kind == "tap") != list(range(len(tapped))):
        want.fail("signature.json.results", "does not name each leaf of the taps once")
    sizes = {"state": len(row["states"]), "input": len(row["inputs"]), "output": len(row["outputs"])}
    sizes["tap"] = len(tapped)
    for kind, index in row["results"]:
        if index >= sizes[kind]:
            want.fail("signature.json.results", f"names {kind} {index} of {sizes[kind]}")
    for leaf in (*row["inputs"], *row["outputs"], *tapped):
        if any(type(size) is int and size < 0 for size in leaf.get("shape", ())):
            want.fail("signature.json", f"{leaf['name']!r} has a negative size")


def _leaf_count(tree: Any) -> int:
    count, stack = 0, [tree]
    while stack:
        node = stack.pop()
        if node == "*":
            count += 1
        else:
            stack.extend(node["children"])
    return count
