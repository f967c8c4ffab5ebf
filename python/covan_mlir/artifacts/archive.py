"""The container under `covan_mlir.artifacts.artifact`: a zip file of which every byte is accounted for.

Each stored member has its SHA-256 in the manifest. Everything else (the deflated JSON members, headers, padding, the
directory) is covered by the *seal*: a SHA-256 in the archive's comment, the last 64 bytes of the file. That finds
damage. It is no signature: whoever can change the file can also seal it again, so the contents are not trusted either.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np
from msgspec.structs import replace

from covan_mlir.artifacts.schema import MANIFEST, SIGNATURE, Header, Manifest, Member, check_manifest
from covan_mlir.support.typed_json import SchemaError, checked, decode, dumps, fail
from covan_mlir.version import __version__

FORMAT = 1
ALIGNMENT = 64

Array = np.ndarray[Any, Any]

# Bounds on what a file may make us hold in memory. Ours are far below.
JSON_LIMIT = 256 << 20
MEMORY = 160 << 20
"""What the JSON members may take as objects, beside three times the size of the file."""
MEMBER_LIMIT = 65_000
_DIRECTORY_LIMIT = 16 << 20

_MEMBER = re.compile(
    rf"(?P<json>{re.escape(MANIFEST)}|{re.escape(SIGNATURE)}|lineage(\.[1-9][0-9]*)?\.json)"
    r"|program(\.[1-9][0-9]*)?\.vmfb|(weights|states)/(0|[1-9][0-9]*)\.bin"
)
# Bytes that a character of a JSON text may take as a part of objects, the most that was measured: a few bytes of text
# become a list, an object of a class or a text of their own.
_COSTS = {b"[": 80, b"{": 200, b",": 40, b'"': 50}

_SEAL_BYTES = 64
_CHUNK = 4 << 20
_LOCAL_HEADER = 30
_MAGIC = b"PK\x03\x04"
_PADDING_FIELD = 0xD935  # the extra field that Android's zipalign pads with
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip demands a time; a real one would make equal contents differ

_CORRUPT = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,  # zip features that zipfile lacks, such as newer versions
    RuntimeError,  # encrypted members
)

_COPY_AGAIN = "Copy the file again, or compile the model again."
_COMPILE_AGAIN = "It was changed, or another program made it: compile the model again."
_PASS_OURS = "Pass a file that 'covan compile' or Executable.save wrote."


def members_of(variant: int) -> tuple[str, str]:
    """Names of the program and of the lineage of a variant, by its index."""
    number = f".{variant}" if variant else ""
    return f"program{number}.vmfb", f"lineage{number}.json"


class ArchiveError(Exception):
    """Why a file is not read or written, and what to do; the path is added where it is known."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


def _damaged(reason: str) -> ArchiveError:
    return ArchiveError(f"damaged: {reason}", _COPY_AGAIN)


def _hostile(reason: str) -> ArchiveError:
    return ArchiveError(f"refused: {reason}", _COMPILE_AGAIN)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_archive(
    file: IO[bytes], manifest: Manifest, binaries: Mapping[str, Array], jsons: Mapping[str, bytes]
) -> None:
    """Write a whole archive at the start of ``file``.

    Args:
        manifest: all of it but ``members``.
        binaries: members stored as they are, little-endian and row-major; hashed on their way, never copied whole.
        jsons: members stored deflated.

    Raises:
        ArchiveError: the manifest does not fit the members, or there is too much of something.
    """
    members = {name: Member(array.nbytes, "0" * 64) for name, array in binaries.items()}
    members |= {name: Member(len(text), hashlib.sha256(text).hexdigest()) for name, text in jsons.items()}
    manifest = replace(manifest, members=members)
    try:  # before gigabytes are written
        check_manifest(checked(manifest, MANIFEST))
        dumps(manifest.to_json())
    except SchemaError as error:
        advice = "Artifacts hold tensors, numbers and text; give each tensor the bytes of its shape."
        raise ArchiveError(f"cannot be written: {error}", advice) from error
    if len(members) > MEMBER_LIMIT:
        raise ArchiveError(f"cannot hold {len(members)} members", "Raise CompileOptions(external_weight_bytes=...).")
    room = _Room(sum(array.nbytes for array in binaries.values()))
    for name, text in jsons.items():
        if not room.holds(text):
            raise ArchiveError(f"cannot hold so much JSON: {name} is too large", "Compile with provenance=False.")

    stored: list[tuple[int, int]] = []
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = b"0" * _SEAL_BYTES
        for name, array in binaries.items():
            digest = hashlib.sha256()
            with archive.open(_aligned(name, array.nbytes, file.tell()), "w", force_zip64=_huge(array.nbytes)) as out:
                start = file.tell()
                for piece in _pieces(array):
                    digest.update(piece)
                    out.write(piece)
            stored.append((start, start + array.nbytes))
            members[name] = Member(array.nbytes, digest.hexdigest())
        described = dumps(replace(manifest, members=members).to_json(), sort_keys=True)
        for name, text in {**jsons, MANIFEST: described}.items():
            if len(text) > JSON_LIMIT:
                raise ArchiveError(f"cannot hold a {name} of {len(text)} bytes", "Compile with provenance=False.")
            archive.writestr(_info(name, len(text)), text, zipfile.ZIP_DEFLATED, 6)
    seal = _seal(file, stored)
    file.seek(-_SEAL_BYTES, os.SEEK_END)
    file.write(seal)


def _pieces(array: Array) -> Iterator[memoryview]:
    """The elements as little-endian bytes in row-major order."""
    little = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and little == array.dtype:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _CHUNK):
            yield flat[start : start + _CHUNK].data
        return
    size = max(1, _CHUNK // max(1, array.itemsize))
    with np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_dtypes=[little],
        order="C",
        casting="equiv",
        buffersize=size,
    ) as pieces:
        for piece in pieces:
            yield np.ascontiguousarray(piece).view(np.uint8).data


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # the same on every machine
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.file_size = size
    return info


def _huge(size: int) -> bool:
    return size > 1 << 30  # well before zipfile would decide so itself: the header's length must be known


def _aligned(name: str, size: int, offset: int) -> zipfile.ZipInfo:
    info = _info(name, size)
    header = _LOCAL_HEADER + len(name) + 6 + (20 if _huge(size) else 0)
    padding = -(offset + header) % ALIGNMENT
    info.extra = struct.pack("<HHH", _PADDING_FIELD, 2 + padding, ALIGNMENT) + bytes(padding)
    return info


# --- hashing ---------------------------------------------------------------------------------------------------------


def _sha256(file: Any, ranges: Iterable[tuple[int, int]]) -> str:
    digest = hashlib.sha256()
    view = memoryview(bytearray(_CHUNK))
    for start, end in ranges:
        file.seek(start)
        while start < end:
            count = file.readinto(view[: min(_CHUNK, end - start)])
            if not count:
                raise _damaged("it ends too early")
            digest.update(view[:count])
            start += count
    return digest.hexdigest()


def _seal(file: IO[bytes], stored: Iterable[tuple[int, int]]) -> bytes:
    """SHA-256 of all bytes but those of stored members (ascending ranges) and the seal's own place."""
    edges = [0]
    for start, end in stored:
        edges += [start, end]
    edges.append(file.seek(0, os.SEEK_END) - _SEAL_BYTES)
    return _sha256(file, zip(edges[::2], edges[1::2], strict=True)).encode("ascii")


# --- reading ---------------------------------------------------------------------------------------------------------


def read_archive(raw: io.FileIO) -> tuple[Manifest, dict[str, bytes], dict[str, Array]]:
    """Read and verify an archive.

    Returns:
        the manifest; the texts of the other JSON members; the stored members, as read-only ``uint8`` arrays over
        the mapped file.

    Raises:
        ArchiveError: the file is damaged, foreign, hostile or from a newer version.
        SchemaError: the manifest is not as it must be.
    """
    file = _Guarded(raw)
    if file.read(4) != _MAGIC:
        if os.fstat(raw.fileno()).st_size == 0:
            raise ArchiveError("is empty", _COPY_AGAIN)
        raise ArchiveError("is no covan artifact: it does not start as a zip file", _PASS_OURS)
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(file, archive)
    except _CORRUPT as error:
        raise _damaged(f"{error or type(error).__name__}".rstrip(".")) from error


class _Guarded(io.BufferedReader):
    """zipfile reads the directory in one piece, of the size that the file claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _DIRECTORY_LIMIT:
            raise _hostile(f"its directory claims {size} bytes")
        return super().read(size)


class _Room:
    """Memory for what is made of JSON texts; a file's size says how much there is."""

    def __init__(self, size: int) -> None:
        self._left = MEMORY + 3 * size

    def holds(self, text: bytes) -> bool:
        """Whether there is room left for one more text."""
        self._left -= 2 * len(text) + sum(cost * text.count(character) for character, cost in _COSTS.items())
        return self._left >= 0


def _read(file: _Guarded, archive: zipfile.ZipFile) -> tuple[Manifest, dict[str, bytes], dict[str, Array]]:
    """From the outside in: manifest's form, names, sizes, seal, hashes."""
    room = _Room(file.seek(0, os.SEEK_END))
    manifest = _manifest(archive, room)
    members = _members(archive, manifest)
    stored = {name: _data_range(file, info) for name, info in members.items() if not name.endswith(".json")}
    ranges = sorted(stored.values())
    if any(a[1] > b[0] for a, b in itertools.pairwise(ranges)):
        raise _hostile("its members overlap")
    seal = _seal(file, ranges)
    if file.read(_SEAL_BYTES) != seal:
        raise _damaged("its headers or its directory were changed")
    check_manifest(manifest)
    names = [SIGNATURE, *(members_of(index)[1] for index in range(len(manifest.variants)))]
    jsons = {name: _text(archive, members[name], room) for name in names}
    digests = {name: _sha256(file, [extent]) for name, extent in stored.items()}
    digests |= {name: hashlib.sha256(text).hexdigest() for name, text in jsons.items()}
    for name, digest in digests.items():
        if digest != manifest.members[name].sha256:
            raise _damaged(f"{name} does not have the SHA-256 that the manifest gives")
    mapped = np.memmap(file, np.uint8, "r")
    return manifest, jsons, {name: mapped[start:end] for name, (start, end) in stored.items()}


def _manifest(archive: zipfile.ZipFile, room: _Room) -> Manifest:
    """The manifest. Its format comes first: a newer one may look different."""
    infos = [info for info in archive.infolist() if info.filename == MANIFEST]
    if not infos:
        raise ArchiveError(f"is no covan artifact: a zip file without {MANIFEST}", _PASS_OURS)
    text = _text(archive, infos[0], room)
    try:
        header = decode(text, Header, MANIFEST)
    except SchemaError as error:
        raise ArchiveError(f"is no covan artifact: {error}", _PASS_OURS) from error
    if header.format > FORMAT:
        writer = header.covan[:40]
        raise ArchiveError(
            f"was written by covan {writer} in format {header.format}; covan {__version__} reads format {FORMAT}",
            f"Install covan {writer} or newer, or compile the model with this version.",
        )
    if header.format < 1:
        fail(f"there is no format {header.format}", MANIFEST, "$.format")
    return decode(text, Manifest, MANIFEST)


def _members(archive: zipfile.ZipFile, manifest: Manifest) -> dict[str, zipfile.ZipInfo]:
    """The directory's entries by name: exactly those that the manifest lists, and nothing strange among them."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.orig_filename  # filename is what zipfile makes of it
        match = _MEMBER.fullmatch(name)
        if not match or name != info.filename:
            raise _hostile(f"it holds {name[:80]!r}, which no artifact has")
        if name in members:
            raise _hostile(f"it holds {name} twice")
        method = zipfile.ZIP_DEFLATED if match["json"] else zipfile.ZIP_STORED
        if info.flag_bits or info.compress_type != method or not stat.S_ISREG(info.external_attr >> 16):
            raise _hostile(f"{name} is a link, encrypted, or compressed as no artifact's is")
        members[name] = info
    listed = manifest.members
    for name in sorted(members.keys() - {*listed, MANIFEST}):
        raise _hostile(f"it holds {name}, which the manifest does not list")
    of_variants = (members_of(index) for index in range(len(manifest.variants)))
    known = {SIGNATURE, *members_of(0), *itertools.chain.from_iterable(of_variants)}
    for name in sorted(known - listed.keys()):
        raise _hostile(f"the manifest does not list {name}")
    for name in sorted(n for n in listed if n.startswith(("program", "lineage")) and n not in known):
        raise _hostile(f"it holds {name}, which belongs to no target")
    for name in sorted(listed.keys() - members.keys()):
        raise _damaged(f"{name[:80]!r} is missing")
    for name, member in listed.items():
        size = members[name].file_size
        if member.size != size:
            raise _hostile(f"{name} has {size} bytes, not the {member.size} of the manifest")
    return members


def _data_range(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, int]:
    """Where a stored member's bytes are."""
    end_of_file = file.seek(0, os.SEEK_END) - _SEAL_BYTES
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or header[:4] != _MAGIC:
        raise _damaged(f"{info.filename} is not where the directory says")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:])
    if file.read(name_bytes) != info.filename.encode("ascii"):
        raise _damaged(f"{info.filename} has another name in its own header")
    start = info.header_offset + _LOCAL_HEADER + name_bytes + extra_bytes
    end = start + info.file_size
    if info.compress_size != info.file_size or end > end_of_file:
        raise _hostile(f"{info.filename} claims {info.file_size} bytes, which are not there")
    if start % ALIGNMENT:
        raise _hostile(f"{info.filename} does not start at a multiple of {ALIGNMENT} bytes")
    return start, end


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo, room: _Room) -> bytes:
    """A JSON member, decompressed to no more than its size in the directory, which has a bound itself; refused before
    it is decoded if what it becomes would be too large."""
    if info.file_size > JSON_LIMIT:
        raise _hostile(f"{info.filename} claims {info.file_size} bytes; the bound is {JSON_LIMIT}")
    if info.file_size > MEMORY // 2 + archive.start_dir:
        raise _hostile(f"{info.filename} claims {info.file_size} bytes, too many for a file of this size")
    pieces, left = [], info.file_size
    with archive.open(info) as member:
        while piece := member.read(_CHUNK):
            pieces.append(piece)
            left -= len(piece)
    if left:
        raise _damaged(f"{info.filename} does not have its {info.file_size} bytes")
    text = b"".join(pieces)
    if not room.holds(text):
        raise _hostile(f"{info.filename} would take too much memory for a file of this size")
    return text
