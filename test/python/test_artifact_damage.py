"""Artifacts that were damaged or made to do harm: refused with a reason, whatever was done to the file."""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from artifacts import assert_equal, contents, edit_json, forge, refused, relaxed
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.artifacts import archive as archives
from covan_mlir.artifacts import artifact
from covan_mlir.errors import ArtifactError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.covan"
    artifact.write(file, contents())
    return file


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    artifact.write(folder / "whole.covan", contents())
    return (folder / "whole.covan").read_bytes()


def test_every_byte_counts(folder: Path, whole: bytes) -> None:
    """Flip one bit of each byte in turn: headers, padding, data, directory, seal."""
    file = folder / "flipped.covan"
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        refused(file)


@relaxed(200)
@given(st.data())
def test_damage_is_found(folder: Path, whole: bytes, data: st.DataObject) -> None:
    """Truncations, flips, splices, insertions: an ArtifactError, never another exception, never a wrong value."""
    place = st.integers(0, len(whole) - 1)
    damaged = bytearray(whole)
    match data.draw(st.sampled_from(["truncate", "flip", "splice", "insert", "remove", "prepend", "append"])):
        case "truncate":
            del damaged[data.draw(place) :]
        case "flip":
            for at in data.draw(st.sets(place, min_size=1, max_size=5)):
                damaged[at] ^= data.draw(st.integers(1, 255))
        case "splice":
            start, source, length = data.draw(place), data.draw(place), data.draw(st.integers(1, 80))
            damaged[start : start + length] = whole[source : source + length]
        case "insert":
            at = data.draw(place)
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=70))
        case "remove":
            at = data.draw(place)
            del damaged[at : at + data.draw(st.integers(1, 70))]
        case "prepend":
            damaged[:0] = data.draw(st.sampled_from([whole, b"\0" * 64, whole[:64]]))
        case "append":
            damaged += data.draw(st.binary(min_size=1, max_size=70) | st.just(whole[-200:]))
    file = folder / "damaged.covan"
    file.write_bytes(damaged)
    if damaged == whole:
        assert_equal(artifact.read(file), contents())
    else:
        refused(file)


@relaxed(100)
@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda b: b"PK\x03\x04" + b + b"PK\x05\x06" + bytes(18)))
def test_any_bytes_are_refused(folder: Path, data: bytes) -> None:
    file = folder / "random.covan"
    file.write_bytes(data)
    refused(file)


def test_forging_itself_gives_a_good_file(path: Path) -> None:
    forge(path, lambda members: None)
    assert_equal(artifact.read(path), contents())


@pytest.mark.parametrize(
    "name",
    ["/etc/cron.d/x", "../../x", "weights/../../x", "weights\\0.bin", "C:\\x", "weights/", "weights/00.bin",
     "WEIGHTS/0.bin", "weights/0.bin\0.txt", "x" * 5000, "weights/٣.bin"],
)  # fmt: skip
def test_hostile_names(path: Path, name: str) -> None:
    forge(path, lambda members: members.update(extra=b"data"), relist=False, rename={"extra": name})
    assert "refused: it holds" in refused(path)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["program.vmfb", "manifest.json", "weights/0.bin"])
def test_duplicate_members(path: Path, name: str) -> None:
    forge(path, lambda members: None, twice=[name])
    assert f"{name} twice" in refused(path)


def test_symbolic_links_are_refused(path: Path) -> None:
    attributes = {"weights/0.bin": (stat.S_IFLNK | 0o777) << 16}
    forge(path, lambda members: members.update({"weights/0.bin": b"/etc/passwd!"}), attributes=attributes)
    assert "link" in refused(path)


def test_members_that_the_manifest_does_not_list(path: Path) -> None:
    forge(path, lambda members: members.update({"weights/9.bin": b"data"}), relist=False)
    assert "does not list" in refused(path)


@pytest.mark.parametrize("name", ["program.vmfb", "lineage.json", "weights/0.bin"])
@pytest.mark.parametrize("relist", [True, False])
def test_missing_members(path: Path, name: str, relist: bool) -> None:
    forge(path, lambda members: members.pop(name), relist=relist)
    refused(path)


def set_in(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(tree: Any) -> None:
        for key in keys[:-1]:
            tree = tree[key]
        if value is ...:
            del tree[keys[-1]]
        else:
            tree[keys[-1]] = value

    return change


HUGE = 1 << 62
WRONG_SCHEMA = [
    ("manifest.json", ("device",), "gpu"),
    ("manifest.json", ("versions", "torch"), 2),
    ("manifest.json", ("weights", 0, "shape"), [HUGE, HUGE]),
    ("manifest.json", ("weights", 0, "shape"), [-3, -2]),
    ("manifest.json", ("weights", 0, "shape"), [3, 2.0]),
    ("manifest.json", ("weights", 0, "shape"), [True, 6]),
    ("manifest.json", ("weights", 0, "shape"), [math.nan]),
    ("manifest.json", ("weights", 0, "dtype"), "float64"),
    ("manifest.json", ("weights", 0, "dtype"), ["float64"]),
    ("manifest.json", ("weights", 0, "member"), "program.vmfb"),
    ("manifest.json", ("weights", 0, "member"), "../x"),
    ("manifest.json", ("weights", 1, "name"), "w"),
    ("manifest.json", ("weights",), {}),
    ("manifest.json", ("format",), 0),
    ("manifest.json", ("format",), True),
    ("manifest.json", ("format",), "1"),
    ("manifest.json", ("covan",), None),
    ("manifest.json", ("variants",), ...),
    ("manifest.json", ("variants",), []),
    ("manifest.json", ("variants", 0, "target"), 1),
    ("manifest.json", ("variants", 1, "requires"), []),
    ("manifest.json", ("variants", 0, "requires", "features"), [1]),
    ("manifest.json", ("variants", 0, "requires", "driver"), 1),
    ("manifest.json", ("variants", 0, "requires", "driver"), "vulkan"),
    ("manifest.json", ("variants", 0, "info", "flops"), "many"),
    ("manifest.json", ("variants", 0, "info", "shared"), []),
    ("manifest.json", ("weights", 1, "shape"), [0] * 74),
    ("manifest.json", ("surprise",), 1),
    ("signature.json", ("format",), 2),
    ("signature.json", ("in_tree",), {"kind": "set", "children": []}),
    ("signature.json", ("in_tree", "children"), ["*", "*", "*"]),
    ("signature.json", ("in_tree", "children"), 7),
    ("signature.json", ("out_tree",), {"kind": "namedtuple", "name": "m:T", "children": ["*"], "keys": ["class"]}),
    ("signature.json", ("out_tree",), {"kind": "namedtuple", "name": "m:T", "children": ["*"], "keys": [1]}),
    ("signature.json", ("out_tree",), {"kind": "namedtuple", "name": "m:T()", "children": ["*"], "keys": ["x"]}),
    ("signature.json", ("out_tree",), {"kind": "deque", "children": ["*"], "keys": [-1]}),
    ("signature.json", ("out_tree",), {"kind": "deque", "children": ["*"]}),
    ("signature.json", ("out_tree",), {"kind": "dict", "children": ["*"], "keys": [[]]}),
    ("signature.json", ("out_tree",), {"kind": "custom", "name": "m.T", "children": ["*"], "context": "x"}),
    ("signature.json", ("inputs", 0, "kind"), "file"),
    ("signature.json", ("inputs", 0, "kind"), []),
    ("signature.json", ("inputs", 0, "shape"), [-1]),
    ("signature.json", ("inputs", 0, "extra"), 1),
    ("signature.json", ("inputs",), [1]),
    ("signature.json", ("in_tree",), "*"),
    (
        "signature.json",
        ("in_tree", "children"),
        [{"kind": "list", "children": ["*"]}, {"kind": "dict", "children": []}],
    ),
    ("signature.json", ("inputs", 0, "shape"), [1] * 74),
    ("signature.json", ("results",), [["output", 1]]),
    ("signature.json", ("results",), [["output", 0]]),
    ("signature.json", ("results",), [["state", 0], ["output", 0], ["output", 0]]),
    ("signature.json", ("results",), [["output", -1]]),
    ("signature.json", ("symbols", "s0"), [math.inf, None]),
    ("signature.json", ("function",), None),
    ("lineage.json", ("format",), 99),
    ("lineage.json", ("pool",), []),
    ("lineage.json", ("actions", 0, 1), -1),
    ("lineage.json", ("actions", 0, 3), [0]),
    ("lineage.json", ("actions", 0), []),
    ("lineage.json", ("parts", 0, 1), 2),
    ("lineage.json", ("parts", 0, 6), 1),
    ("lineage.json", ("parts", 0, 7), "[[],[]"),
    ("lineage.json", ("parts", 0, 7), "[[]]"),
    ("lineage.json", ("parts", 0, 7), '[[{"p":0}],[]]'),
    ("lineage.json", ("parts", 0, 7), '[[{"x":0}],[]]'),
    ("lineage.json", ("results",), [["p", 7]]),
    ("lineage.json", ("phases",), [[0, None]]),
    ("lineage.json", ("phases",), [[0, [[[0, 0, [3], [], []]], []]]]),
    ("lineage.json", ("sites", 0, 8), 0),
    ("lineage.json", ("sites", 0, 1), "later"),
    ("lineage.json", ("sites", 0, 2), "rumour"),
    ("lineage.json", ("sites", 0, 3), [HUGE]),
    ("lineage.json", ("sites", 0, 4), [17]),
    ("lineage.json", ("sites", 0, 5), [1]),
    ("lineage.json", ("fates", 0, 0), "lost"),
    ("lineage.json", ("fates",), [["dead", [], 0, None]]),
    ("lineage.json", ("part_fates", 0, 0), 99),
    ("lineage.json", ("part_fates", 0, 2), [HUGE]),
    ("lineage.json", ("history", 0, 1), [[0, [[0, -1]]]]),
    ("lineage.json", ("commands",), [[1]]),
    ("lineage.json", ("groups",), ...),
    ("lineage.json", ("groups", 0, 0), "attention"),
    ("lineage.json", ("groups", 0, 0), "attention@one"),
    ("lineage.json", ("groups", 0, 0), "@0"),
    ("lineage.json", ("groups", 0, 0), "mlp@0"),
    ("lineage.json", ("groups", 0, 1), "herd"),
    ("lineage.json", ("groups", 0, 2), [2]),
    ("lineage.json", ("fusions", 0, "parts"), [2]),
    ("lineage.json", ("fusions", 0, "kernel"), None),
    ("lineage.json", ("fusions", 0, "seconds"), -1.0),
    ("lineage.json", ("fusions", 0, "certificates", 0, "proofs", 0, "result"), "believed"),
    ("lineage.json", ("fusions", 0, "sweeps", 0, "axes"), "j"),
    ("lineage.json", ("fusions", 1), {}),
    ("lineage.json", ("tags",), {}),
    ("lineage.json", ("tags", 0, 0), ""),
    ("lineage.json", ("tags", 0, 0), "audit\x1b[31m"),
    ("lineage.json", ("tags", 0, 0), "hot"),
    ("lineage.json", ("tags", 0, 1), [-1]),
]


@pytest.mark.parametrize(("member", "keys", "value"), WRONG_SCHEMA)
def test_wrong_schema(path: Path, member: str, keys: tuple[Any, ...], value: Any) -> None:
    forge(path, edit_json(member, set_in(*keys, value=value)), relist=member != "manifest.json")
    refused(path)


@pytest.mark.parametrize(
    ("size", "digest"),
    [(math.nan, None), (math.inf, None), (1e3, None), (-1, None), ("12", None), (12, "A" * 64), (12, 5)],
)
def test_wrong_sizes_and_hashes(path: Path, size: Any, digest: Any) -> None:
    row = {"size": size, "sha256": digest or "0" * 64}
    forge(path, edit_json("manifest.json", set_in("members", "weights/0.bin", value=row)), relist=False)
    refused(path)


@pytest.mark.parametrize("member", ["manifest.json", "signature.json", "lineage.json"])
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"null", b"[]", b'{"format": NaN}', b"[" * 200_000, b'{"format": 1e999}', b"9" * 5000,
     b'{"format": 1, "covan": "x", "members": 3}'],
    ids=lambda data: str(data[:30]),
)  # fmt: skip
def test_malformed_json(path: Path, member: str, data: bytes) -> None:
    forge(path, lambda members: members.update({member: data}), relist=member != "manifest.json")
    refused(path)


def test_deep_trees_are_refused(path: Path) -> None:
    def nest(members: dict[str, bytes]) -> None:
        signature = json.loads(members["signature.json"])
        tree = json.dumps(signature.pop("in_tree"))
        for _ in range(900):
            tree = f'{{"kind":"tuple","children":[{tree}]}}'
        members["signature.json"] = f'{json.dumps(signature)[:-1]},"in_tree":{tree}}}'.encode()

    forge(path, nest)
    refused(path)


def test_newer_formats_name_the_covan_that_wrote_them(path: Path) -> None:
    def upgrade(members: dict[str, bytes]) -> None:
        members["manifest.json"] = b'{"format": 2, "covan": "7.5.1", "members": [], "unheard": "of"}'
        members["novelty.bin"] = b"data"

    forge(path, upgrade, relist=False)
    with pytest.raises(ArtifactError, match=r"written by covan 7\.5\.1 in format 2.*\nInstall covan 7\.5\.1"):
        artifact.read(path)


def test_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "foreign.covan"
    for data, reason in [(b"", "is empty"), (b"\x7fELF" * 99, "no covan artifact"), (b"P", "no covan artifact")]:
        file.write_bytes(data)
        assert reason in refused(file)
    for members in (
        {"word/document.xml": "<w/>"},
        {"manifest.json": '{"name": "extension"}'},
        {"manifest.json": "[1]"},
    ):
        with zipfile.ZipFile(file, "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        assert "no covan artifact" in refused(file)


def test_not_a_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.covan")
    assert "a directory" in refused(tmp_path)
    assert "regular file" in refused("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in refused(tmp_path / "pipe")
    assert "cannot be read" in refused(tmp_path / ("x" * 300))
    with pytest.raises(ArtifactError, match="NUL"):
        artifact.read("a\0b")


def test_unreadable_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: Any, **kwargs: Any) -> Any:  # chmod does not stop root, who may run this
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    assert "cannot be read: permission denied" in refused(path)


def peak_of_reading(path: Path) -> tuple[str, int]:
    """Message and peak memory growth (bytes) of reading in a process of its own."""
    code = textwrap.dedent("""
        import resource, sys
        from covan_mlir.artifacts import artifact
        from covan_mlir.errors import ArtifactError
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            artifact.read(sys.argv[1])
        except ArtifactError as error:
            print(str(error).splitlines()[0])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """)
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    message, peak = out.splitlines()
    return message, int(peak) * 1024


def patch_directory(path: Path, name: str, offset: int, form: str, value: int) -> None:
    """Overwrite a field of a member's entry in the central directory."""
    data = bytearray(path.read_bytes())
    at = data.rfind(name.encode()) - 46
    assert data[at : at + 4] == b"PK\x01\x02"
    struct.pack_into(form, data, at + offset, value)
    path.write_bytes(data)


def test_declared_bomb(path: Path) -> None:
    patch_directory(path, "manifest.json", 24, "<I", 1 << 31)
    assert "the bound is" in refused(path)


def test_actual_bomb(path: Path) -> None:
    """200 MB of spaces behind a small declared size: no more than that size is decompressed."""

    def inflate(members: dict[str, bytes]) -> None:
        members["manifest.json"] += b" " * 200_000_000

    forge(path, inflate, relist=False)
    patch_directory(path, "manifest.json", 24, "<I", 1000)
    message, peak = peak_of_reading(path)
    assert "damaged" in message
    assert peak < 64 << 20


def test_large_json_is_refused_before_it_is_decompressed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "JSON_LIMIT", 2000)
    forge(path, lambda members: members.update({"lineage.json": b" " * 2001}))
    assert "claims 2001 bytes" in refused(path)


BOMBS: dict[str, tuple[str, ...]] = {  # a member, where in it, what is repeated there
    "lists": ("lineage.json", "commands", "[]"),
    "nodes": ("lineage.json", "phases", "[0,[[],[]]]"),
    "actions": ("lineage.json", "actions", '["n",0,0,[],[],[],0,0]'),
    "texts": ("lineage.json", "pool", '"ab"'),
    "objects": ("lineage.json", "fusions", '{"what":"","parts":[]}'),
    "facts": ("manifest.json", "inputs", '"x"'),
    "leaves": ("signature.json", "parameters", '""'),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_expands_in_memory_is_refused(path: Path, bomb: str) -> None:
    """A hundred kilobytes that become gigabytes of objects, each in a process of its own."""
    member, key, item = BOMBS[bomb]

    def inflate(members: dict[str, bytes]) -> None:
        value = json.loads(members[member])
        value[key] = []
        text = json.dumps(value)
        items = ",".join([item] * (60_000_000 // len(item)))
        members[member] = text.replace(f'"{key}": []', f'"{key}": [{items}]').encode()

    forge(path, inflate, relist=member != "manifest.json")
    message, peak = peak_of_reading(path)
    assert "refused" in message
    assert peak < (200 << 20) + 4 * path.stat().st_size


def test_directory_bomb(path: Path) -> None:
    data = bytearray(path.read_bytes())
    end = data.rfind(b"PK\x05\x06")
    struct.pack_into("<II", data, end + 12, 0xFFFFFFF0, 0)
    path.write_bytes(data)
    refused(path)


def test_overlapping_members(path: Path) -> None:
    """Two entries over the same bytes: the trick by which small files expand without end."""

    def alike(members: dict[str, bytes]) -> None:
        members["weights/1.bin"] = members["weights/0.bin"]

    forge(path, alike)
    with zipfile.ZipFile(path) as archive:
        first = archive.getinfo("weights/0.bin").header_offset
    patch_directory(path, "weights/1.bin", 42, "<I", first)
    refused(path)
