"""The manifest and the signature of an artifact as they are stored (docs/artifact.md).

The writer checks its own output in the same way, so that no file is written that cannot be read.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from covan_mlir.artifacts.attachment import Attached
from covan_mlir.support.typed_json import (
    Amount,
    Constant,
    JsonObject,
    Natural,
    Scalar,
    Sha256,
    convert,
    fail,
    repeated,
    short,
)

MANIFEST, SIGNATURE = "manifest.json", "signature.json"

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
if TYPE_CHECKING:
    Device = str
    Dtype = str
else:
    Device = Literal[DEVICES]
    Dtype = Literal[tuple(ITEM_SIZES)]


Shape = Annotated[tuple[Natural, ...], msgspec.Meta(max_length=64)]
"""Of a tensor that is there: numpy knows no more dimensions."""


# --- the manifest ----------------------------------------------------------------------------------------------------


class Header(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What the manifests of all formats have in common."""

    covan: str
    format: int


class Member(JsonObject, frozen=True):
    """Bytes of a member, and their hash."""

    size: Natural
    sha256: Sha256


class StoredBlob(JsonObject, frozen=True):
    """A tensor: its bytes are a member."""

    name: str
    member: str
    dtype: Dtype
    shape: Shape


class StoredVariant(JsonObject, frozen=True, omit_defaults=True):
    """The program for a target; its members have their names from its place among the variants."""

    target: str
    requires: Mapping[str, Any]
    info: Mapping[str, Any]
    attachments: tuple[Attached, ...] = ()


class Work(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What a call takes; of ``info``."""

    flops: Amount = 0
    elements: Amount = 0
    dispatches: Amount = 0


class Facts(Work, frozen=True, forbid_unknown_fields=False):
    """Of ``info``, what who runs a program asks for."""

    weights: str = "globals"
    shared: Work = Work()


class _LocalRequirements(JsonObject, frozen=True, forbid_unknown_fields=False):
    architecture: str | None = None
    features: tuple[str, ...] = ()


class _VulkanRequirements(JsonObject, frozen=True, forbid_unknown_fields=False):
    subgroup_size: Natural
    types: tuple[str, ...]
    shared_memory: Natural
    workgroup_invocations: Natural


class _CudaRequirements(JsonObject, frozen=True, forbid_unknown_fields=False):
    capability: tuple[Natural, Natural]
    exact: bool = False


_REQUIREMENTS: Mapping[str, type[JsonObject]] = {
    "local": _LocalRequirements,
    "vulkan": _VulkanRequirements,
    "cuda": _CudaRequirements,
}


class SizeRange(JsonObject, frozen=True):
    """Sizes of an open dimension.

    Attributes:
        name: that the user gave the dimension.
        symbol: what the signature calls it.
        low, high: the sizes, both included; None: no bound.
    """

    name: str
    symbol: str
    low: Natural
    high: Natural | None = None

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.name}={self.low}"
        return f"{self.name}={self.low}..{'' if self.high is None else self.high}"


class StoredVersion(JsonObject, frozen=True):
    """A program for some of the sizes of open dimensions.

    Attributes:
        variants: places of its programs among all variants.
    """

    ranges: Annotated[tuple[SizeRange, ...], msgspec.Meta(min_length=1)]
    signature: StoredSignature
    variants: Annotated[tuple[Natural, ...], msgspec.Meta(min_length=1)]


class Manifest(JsonObject, frozen=True, omit_defaults=True):
    """``manifest.json``."""

    format: int
    covan: str
    device: Device
    versions: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variants: tuple[StoredVariant, ...]
    weights: tuple[StoredBlob, ...]
    states: tuple[StoredBlob, ...]
    members: Mapping[str, Member]
    specialised: Annotated[tuple[StoredVersion, ...], msgspec.Meta(max_length=64)] = ()


def check_manifest(manifest: Manifest) -> None:
    """Raises `SchemaError` unless there is a program, and blobs have the sizes that their dtypes and shapes give."""
    if not manifest.variants:
        fail("names no program", MANIFEST, "$.variants")
    for index, variant in enumerate(manifest.variants):
        path = f"{MANIFEST} $.variants[{index}]"
        driver = convert(variant.requires.get("driver", "local"), str, f"{path}.requires.driver")
        if driver in _REQUIREMENTS:
            convert(variant.requires, _REQUIREMENTS[driver], f"{path}.requires")
        convert(variant.info, Facts, f"{path}.info")
    of_versions = [place for version in manifest.specialised for place in version.variants]
    if len(set(of_versions)) != len(of_versions) or any(place >= len(manifest.variants) for place in of_versions):
        fail("name programs twice, or such as there are not", MANIFEST, "$.specialised")
    if len(of_versions) == len(manifest.variants):
        fail("leave no program that is for all sizes", MANIFEST, "$.specialised")
    for version in manifest.specialised:
        check_signature(version.signature)
    for folder, blobs in (("weights", manifest.weights), ("states", manifest.states)):
        for index, blob in enumerate(blobs):
            path = f"$.{folder}[{index}]"
            if blob.member != f"{folder}/{index}.bin":
                fail(f"is {short(blob.member)}, not '{folder}/{index}.bin'", MANIFEST, f"{path}.member")
            size = math.prod(blob.shape) * ITEM_SIZES[blob.dtype]
            member = manifest.members.get(blob.member)
            if member is None or member.size != size:
                fail(f"{blob.name!r} does not have the {size} bytes of its shape and dtype", MANIFEST, path)
        if (name := repeated(blob.name for blob in blobs)) is not None:
            fail(f"two of them are called {short(name)}", MANIFEST, f"$.{folder}")


# --- the signature ---------------------------------------------------------------------------------------------------


class StoredTree(JsonObject, frozen=True, omit_defaults=True):
    """A container; see `covan_mlir.artifacts.pytree.Tree`."""

    kind: Annotated[str, msgspec.Meta(pattern=r"\A(tuple|list|dict|OrderedDict|defaultdict|deque|namedtuple|custom)\Z")]
    children: tuple[StoredTree | Literal["*"], ...]
    keys: tuple[Scalar, ...] = ()
    name: str = ""
    context: str = ""

    def __post_init__(self) -> None:
        keyed = self.kind in ("dict", "OrderedDict", "defaultdict", "namedtuple")
        count = len(self.children) if keyed else self.kind == "deque"
        if len(self.keys) != count or len(set(self.keys)) != count:
            raise ValueError(f"a {self.kind} of {len(self.children)} has the keys {short(list(self.keys))}")
        if self.kind == "namedtuple":
            names = [re.split(r"[.:]", self.name)[-1], *self.keys]
            if not all(map(_is_name, names)) or any(str(key).startswith("_") for key in self.keys):
                raise ValueError(f"a namedtuple {short(self.name)} has the fields {short(list(self.keys))}")
        elif self.kind == "deque" and not (self.keys[0] is None or _is_natural(self.keys[0])):
            raise ValueError(f"the length of a deque is {short(self.keys[0])}")
        elif self.kind == "custom":
            json.loads(self.context)

    @property
    def leaf_count(self) -> int:
        """Leaves in all depths."""
        return sum(_leaf_count(child) for child in self.children)


AnyTree = StoredTree | Literal["*"]
"""A container or a leaf."""


def _check_depth(tree: AnyTree, path: str) -> None:
    level = [tree]
    for _ in range(DEPTH + 1):
        level = [child for inner in level if isinstance(inner, StoredTree) for child in inner.children]
        if not level:
            return
    fail(f"has more than {DEPTH} containers inside of each other", SIGNATURE, path)


def _leaf_count(tree: AnyTree) -> int:
    return tree.leaf_count if isinstance(tree, StoredTree) else 1


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isidentifier() and not keyword.iskeyword(value)


def _is_natural(value: Any) -> bool:
    return type(value) is int and value >= 0


class StoredTensor(JsonObject, frozen=True, tag_field="kind", tag="tensor", omit_defaults=True):
    """A tensor among inputs or outputs.

    Attributes:
        fixed: its elements, flat, if they are built into the program.
    """

    name: str
    dtype: Dtype
    shape: Annotated[tuple[Natural | str, ...], msgspec.Meta(max_length=64)]
    mutated: bool = False
    fixed: Annotated[tuple[int | float, ...], msgspec.Meta(max_length=64)] | None = None


class StoredScalar(JsonObject, frozen=True, tag_field="kind", tag="scalar"):
    """A Python number among them."""

    name: str
    dtype: Annotated[str, msgspec.Meta(pattern=r"\A(int|float|bool)\Z")]
    symbol: str


class StoredConstant(JsonObject, frozen=True, tag_field="kind", tag="constant"):
    """A value that was fixed when the model was exported."""

    name: str
    value: Constant


StoredLeaf = StoredTensor | StoredScalar | StoredConstant
ResultKind = Literal["state", "input", "output", "tap", "faults"]


class MutatedBuffer(JsonObject, frozen=True):
    """A buffer of the model that the program mutates: it is passed in after the user's inputs, and returned."""

    name: str
    dtype: Dtype
    shape: Shape


class StoredTap(JsonObject, frozen=True):
    """What an attached operator gives."""

    name: str
    tree: AnyTree
    leaves: tuple[StoredLeaf, ...]


Limit = int | Annotated[str, msgspec.Meta(max_length=2000)]
"""A number, or an expression over symbols."""
Cut = tuple[int | None, int | None, int]
"""Which elements along an axis, as Python's slices say it: start, end, step."""


class Check(JsonObject, frozen=True, omit_defaults=True):
    """Which integers an operator of the model takes.

    Attributes:
        op, module, file, line: the operator, and where the model calls it.
        low, high: of its indices; ``high`` is too large. ``low`` alone is what a divisor must not be.
        argument: the input whose elements they are; None: the program computes them, and one of its results tells.
        bounds: which elements of the argument, for each of its axes; all of them if it is empty.
        ignored: an element that does not count.
    """

    op: str
    kind: Literal["index", "divisor"] = "index"
    low: Limit = 0
    high: Limit = 0
    module: str = ""
    file: str = ""
    line: int = 0
    argument: Natural | None = None
    bounds: Annotated[tuple[Cut, ...], msgspec.Meta(max_length=64)] = ()
    ignored: int | None = None


class StoredSignature(JsonObject, frozen=True, omit_defaults=True):
    """``signature.json``."""

    format: int
    function: str
    in_tree: AnyTree
    out_tree: AnyTree
    inputs: tuple[StoredLeaf, ...]
    outputs: tuple[StoredLeaf, ...]
    states: tuple[MutatedBuffer, ...]
    results: tuple[tuple[ResultKind, Natural], ...]
    parameters: tuple[str, ...]
    symbols: Mapping[str, tuple[int | None, int | None]]
    taps: tuple[StoredTap, ...] = ()
    checks: tuple[Check, ...] = ()


SIGNATURE_FORMAT = 1
DEPTH = 64
"""Containers inside of each other, at most."""


def check_signature(signature: StoredSignature) -> None:
    """Raises `SchemaError` unless it has the format of this version, and its parts fit together."""
    if signature.format != SIGNATURE_FORMAT:
        fail(f"is {signature.format}, not {SIGNATURE_FORMAT}", SIGNATURE, "$.format")
    structures = [
        ("$.in_tree", signature.in_tree, signature.inputs),
        ("$.out_tree", signature.out_tree, signature.outputs),
        *((f"$.taps[{index}].tree", tap.tree, tap.leaves) for index, tap in enumerate(signature.taps)),
    ]
    for path, tree, leaves in structures:
        _check_depth(tree, path)
        if (count := _leaf_count(tree)) != len(leaves):
            fail(f"has {count} leaves, {len(leaves)} are described", SIGNATURE, path)
    if (name := repeated(tap.name for tap in signature.taps)) is not None:
        fail(f"two of them are called {short(name)}", SIGNATURE, "$.taps")
    match signature.in_tree:
        case StoredTree(kind="tuple", children=(StoredTree(kind="tuple"), StoredTree(kind="dict"))):
            pass
        case _:
            fail("is no tuple of a tuple of arguments and a dict of those by name", SIGNATURE, "$.in_tree")
    taps = [leaf for tap in signature.taps for leaf in tap.leaves]
    named = {
        "state": [True] * len(signature.states),
        "input": [isinstance(leaf, StoredTensor) and leaf.mutated for leaf in signature.inputs],
        "output": [not isinstance(leaf, StoredConstant) for leaf in signature.outputs],
        "tap": [True] * len(taps),
        "faults": [True] * sum(check.argument is None for check in signature.checks),
    }
    if any(isinstance(leaf, StoredConstant) for leaf in taps):
        fail("give a constant", SIGNATURE, "$.taps")
    for position, check in enumerate(signature.checks):
        _check_of_argument(check, signature.inputs, f"$.checks[{position}]")
    for position, (kind, index) in enumerate(signature.results):
        if index >= len(named[kind]):
            fail(f"there is no {kind} {index}", SIGNATURE, f"$.results[{position}]")
    for of_results, demanded in named.items():
        indices = sorted(index for kind, index in signature.results if kind == of_results)
        if indices != [index for index, wanted in enumerate(demanded) if wanted]:
            fail(f"does not name each {of_results} that the program gives once", SIGNATURE, "$.results")


def _check_of_argument(check: Check, inputs: tuple[StoredLeaf, ...], path: str) -> None:
    if check.argument is None:
        return
    leaf = inputs[check.argument] if check.argument < len(inputs) else None
    if not isinstance(leaf, StoredTensor) or not re.match(r"u?int", leaf.dtype):
        fail(f"argument {check.argument} is no tensor of integers", SIGNATURE, path)
    if len(check.bounds) not in (0, len(leaf.shape)) or any(step < 1 for _, _, step in check.bounds):
        fail("has bounds that do not fit the argument", SIGNATURE, path)
