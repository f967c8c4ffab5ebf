"""The ``.covan`` file: a compiled program with its weights, signature and lineage (format: docs/artifact.md).

A zip file that any zip tool can list, without pickles. Weights and program are stored as they are, at multiples of 64
bytes, so that reading maps them instead of loading them. The zip itself is `covan_mlir.artifacts.archive`; what the
JSON members must look like is `covan_mlir.artifacts.schema` and `covan_mlir.provenance.lineage_schema`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from covan_mlir.artifacts.archive import FORMAT, ArchiveError, members_of, read_archive, write_archive
from covan_mlir.artifacts.attachment import digest
from covan_mlir.artifacts.schema import (
    SIGNATURE,
    Manifest,
    StoredBlob,
    StoredSignature,
    StoredVariant,
    StoredVersion,
    check_signature,
)
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.artifacts.variant import Variant, Version, choose
from covan_mlir.errors import ArtifactError
from covan_mlir.provenance import lineage_json
from covan_mlir.support.typed_json import SchemaError, checked, decode, dumps
from covan_mlir.version import __version__

__all__ = ["FORMAT", "Blob", "Contents", "check_writable", "read", "readable", "write"]

_OTHER_PATH = "Choose another path."


@dataclass(frozen=True, eq=False)
class Blob:
    """One tensor.

    Attributes:
        dtype: as torch spells it, such as ``bfloat16``.
        data: its elements in row-major order, little-endian; or an array of them, in any layout. `read` gives a
            read-only ``uint8`` array over the mapped file, aligned to 64 bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview | bytes | np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Contents:
    """All that an artifact holds.

    Attributes:
        variants: the program for each target, in the order in which they are preferred.
        device: of the runtime for programs on CPUs: ``auto``, ``local-task`` or ``local-sync``.
        versions: of the tools that made it: ``covan``, ``torch``, ``iree-base-compiler`` ...
        weights: tensors that the program reads from outside, by parameter name.
        states: initial values of mutated buffers, by name.
        specialised: versions for some sizes of open dimensions.
    """

    variants: tuple[Variant, ...]
    signature: Signature
    device: str
    versions: Mapping[str, str]
    weights: Mapping[str, Blob] = field(default_factory=dict)
    states: Mapping[str, Blob] = field(default_factory=dict)
    specialised: tuple[Version, ...] = ()

    @property
    def programs(self) -> tuple[Variant, ...]:
        """Those of all versions, the general one's first."""
        return (*self.variants, *(variant for version in self.specialised for variant in version.variants))

    def variant(self, target: str | None = None) -> Variant:
        """The program for a target; for the one that is preferred, if none is named.

        Raises:
            TargetError: there is none.
        """
        return choose(self.variants, target)

    def of_versions(self, variant: Variant) -> dict[str, Variant]:
        """The programs of the versions for some sizes, by these sizes, for a variant's target."""
        each = ((version.name, program) for version in self.specialised for program in version.variants)
        return {name: program for name, program in each if program.target == variant.target}


def write(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write an artifact. Equal contents give equal bytes. Either the whole file is there afterwards or the old one.

    Raises:
        ArtifactError: the file cannot be written, or the contents cannot be stored.
    """
    name = os.fspath(path)
    with _artifact_errors(name, "cannot be written", "Choose another path, or free space."):
        destination = _destination(name)
        manifest, jsons = _describe(contents)
        binaries = {members_of(index)[0]: _array(variant.program) for index, variant in enumerate(contents.programs)}
        for folder, blobs in (("weights", contents.weights), ("states", contents.states)):
            binaries |= {f"{folder}/{index}.bin": _array(blob.data) for index, blob in enumerate(blobs.values())}
        # In the same folder, or the final rename could not be atomic.
        temporary = os.path.join(os.path.dirname(destination), f".covan-{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb+") as file:
                write_archive(file, manifest, binaries, jsons)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, destination)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(os.path.dirname(destination))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out before a long compilation whether `write` could write to ``path``; nothing is left behind.

    Raises:
        ArtifactError: it could not, and why.
    """
    name = os.fspath(path)
    with (
        _artifact_errors(name, "cannot be written", _OTHER_PATH),
        tempfile.TemporaryFile(dir=os.path.dirname(_destination(name))),
    ):
        pass


def read(path: str | os.PathLike[str], opened: Callable[[IO[bytes]], object] = lambda file: None) -> Contents:
    """Read and verify an artifact. Weights and program are mapped, not loaded: the file must not change while in use
    (`write` never changes one: it puts a new file in its place).

    Args:
        opened: is given the open file before anything is made of it, and may refuse it. What the path names later may
            be another file.

    Raises:
        ArtifactError: the file is missing, damaged, foreign or from a newer version; says which.
    """
    name = os.fspath(path)
    with _artifact_errors(name, "cannot be read", "Check its permissions."):
        _refuse_nul(name)
        mode = os.stat(name).st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
            what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise ArchiveError(f"cannot be read: it is {what}", "Give the path of a .covan file.")
        with open(name, "rb", buffering=0) as raw:
            opened(raw)
            raw.seek(0)
            manifest, jsons, binaries = read_archive(raw)
        signature = _signature(jsons[SIGNATURE])
        variants = tuple(
            Variant(
                stored.target,
                binaries[members_of(index)[0]].data,
                lineage_json.read(jsons[members_of(index)[1]]),
                stored.info,
                stored.requires,
                stored.attachments,
            )
            for index, stored in enumerate(manifest.variants)
        )
        specialised = tuple(
            Version(stored.ranges, Signature.of(stored.signature), tuple(variants[place] for place in stored.variants))
            for stored in manifest.specialised
        )
        of_versions = {place for stored in manifest.specialised for place in stored.variants}
        variants = tuple(variant for place, variant in enumerate(variants) if place not in of_versions)
        for variant in variants:
            _check_attachments(variant, signature)
        for version in specialised:
            for variant in version.variants:
                _check_attachments(variant, version.signature)

    def blobs(stored: Iterable[StoredBlob]) -> dict[str, Blob]:
        return {blob.name: Blob(blob.dtype, blob.shape, binaries[blob.member]) for blob in stored}

    return Contents(
        variants=variants,
        signature=signature,
        device=manifest.device,
        versions=manifest.versions,
        weights=blobs(manifest.weights),
        states=blobs(manifest.states),
        specialised=specialised,
    )


@contextlib.contextmanager
def _artifact_errors(name: str, failed: str, advice: str) -> Iterator[None]:
    try:
        yield
    except ArchiveError as error:
        raise ArtifactError(f"{name}: {error.reason}\n{error.advice}") from error
    except SchemaError as error:
        raise ArtifactError(f"{name}: refused: {error}\nCompile the model again.") from error
    except FileNotFoundError as error:
        raise ArtifactError(f"{name}: no such file or folder\nCheck the path.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArtifactError(f"{name}: {failed}: {reason[:1].lower()}{reason[1:]}\n{advice}") from error


def _refuse_nul(name: str) -> None:
    if "\0" in name:  # a ValueError from the operating system's door, otherwise
        raise ArchiveError("the path holds a NUL character", _OTHER_PATH)


def _destination(name: str) -> str:
    """Absolute path of the file to replace: where a symbolic link points, not the link."""
    _refuse_nul(name)
    destination = os.path.realpath(name)
    if os.path.isdir(destination) or not os.path.basename(name):
        raise ArchiveError("cannot be written: it is a directory", "Give the path of a file, such as model.covan.")
    if os.path.lexists(destination) and not os.path.isfile(destination):
        raise ArchiveError("cannot be written: it is no regular file", _OTHER_PATH)
    folder = os.path.dirname(destination)
    if not os.path.isdir(folder):
        raise ArchiveError(f"cannot be written: there is no folder {folder}", "Create the folder first.")
    return destination


def _describe(contents: Contents) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest without its members, and the other JSON members; checked as a reader would."""
    try:
        signature = checked(contents.signature.stored(), SIGNATURE)
        check_signature(signature)
        jsons = {SIGNATURE: dumps(signature.to_json())}
        for index, variant in enumerate(contents.programs):
            jsons[members_of(index)[1]] = lineage_json.write(variant.lineage)
    except (SchemaError, ValueError) as error:
        advice = "Artifacts hold tensors, numbers and text; take anything else out of the model's arguments."
        raise ArchiveError(f"cannot be written: {error}", advice) from error
    manifest = Manifest(
        format=FORMAT,
        covan=contents.versions.get("covan", __version__),
        device=contents.device,
        versions=contents.versions,
        inputs=tuple(map(readable, contents.signature.inputs)),
        outputs=tuple(map(readable, contents.signature.outputs)),
        variants=tuple(
            StoredVariant(variant.target, variant.requires, variant.info, variant.attachments)
            for variant in contents.programs
        ),
        specialised=_versions(contents),
        weights=_blobs("weights", contents.weights),
        states=_blobs("states", contents.states),
        members={},
    )
    return manifest, jsons


def _versions(contents: Contents) -> tuple[StoredVersion, ...]:
    places = itertools.count(len(contents.variants))
    return tuple(
        StoredVersion(version.ranges, version.signature.stored(), tuple(next(places) for _ in version.variants))
        for version in contents.specialised
    )


def _check_attachments(variant: Variant, signature: Signature) -> None:
    """Attached operators are what they were when they were compiled."""
    taps = [attached.name for attached in variant.attachments if attached.mode == "tap"]
    if taps != [tap.name for tap in signature.taps]:
        raise ArchiveError("refused: the attachments and the program's taps differ", "Compile the model again.")
    for attached in variant.attachments:
        try:
            same = digest(attached, variant.lineage) == attached.sha256
        except KeyError:
            same = False
        if not same:
            raise ArchiveError(
                f"refused: the attached operator {attached.name!r} is not the one that was compiled: "
                "its SHA-256 differs",
                "Compile the model again.",
            )


def readable(leaf: Leaf) -> str:
    """An argument or a result for people."""
    return f"{leaf.name}: {leaf.type_string()}" if leaf.name else leaf.type_string()


def _blobs(folder: str, blobs: Mapping[str, Blob]) -> tuple[StoredBlob, ...]:
    return tuple(
        StoredBlob(name, f"{folder}/{index}.bin", blob.dtype, tuple(int(size) for size in blob.shape))
        for index, (name, blob) in enumerate(blobs.items())
    )


def _array(data: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)


def _signature(data: bytes) -> Signature:
    stored = decode(data, StoredSignature, SIGNATURE)
    try:
        check_signature(stored)
        return Signature.of(stored)
    except RecursionError as error:
        raise SchemaError(f"{SIGNATURE} is nested too deeply") from error


def _sync_folder(folder: str) -> None:
    """Make the rename last through a power failure, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
