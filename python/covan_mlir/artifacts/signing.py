"""Who made an artifact: signatures beside it, ``model.covan.sig``, by Ed25519 (RFC 8032).

A signature is of the SHA-256 of the whole file, so that nothing of a file is interpreted before that is
known. Keys are PEM files, as ``openssl genpkey -algorithm ed25519`` writes them. Needs ``cryptography``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from covan_mlir.errors import ArtifactError, InputError
from covan_mlir.support import whole_file
from covan_mlir.support.typed_json import JsonObject, SchemaError, Sha256, decode, dumps

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SUFFIX = ".sig"
_LIMIT = 1 << 16  # bytes of keys and signatures
_PURPOSE = b"covan artifact, SHA-256: "  # a key that signs other things, too, has not signed this by them


class Signature(JsonObject, frozen=True):
    """What a signature's file holds.

    Attributes:
        sha256: of the artifact.
        key: SHA-256 of the public key's 32 bytes, by which people tell keys apart.
        signature: in hexadecimal digits.
    """

    format: Literal[1]
    algorithm: Literal["ed25519"]
    sha256: Sha256
    key: Sha256
    signature: str


def sha256(file: IO[bytes]) -> str:
    """Of a whole open file."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # a raw file is one


def new_keys(private: str | os.PathLike[str], public: str | os.PathLike[str]) -> str:
    """Make a pair of keys, the private one for its owner's eyes only; -> the public key's SHA-256.

    Raises:
        InputError: there is a file already, or it cannot be written.
    """
    serialization = _cryptography("serialization")
    key = _cryptography("ed25519").Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    known = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path in (private, public):
        if os.path.lexists(path):
            raise InputError(f"{path}: is there already: keys are not overwritten")
    try:
        whole_file.write(private, secret, 0o600)
        whole_file.write(public, known)
    except OSError as error:
        raise InputError(f"{private}, {public}: cannot be written: {error.strerror or error}") from error
    return _name(key.public_key())


def public_key(path: str | os.PathLike[str]) -> Ed25519PublicKey:
    """The public key in a file.

    Raises:
        InputError: there is none.
    """
    key: Ed25519PublicKey = _key(path, "load_pem_public_key", "Ed25519PublicKey", "public")
    return key


def sign(path: str | os.PathLike[str], private: str | os.PathLike[str]) -> str:
    """Write ``<path>.sig``; -> the name of that file.

    Args:
        private: file of the private key.

    Raises:
        InputError: there is no such key.
        ArtifactError: the artifact cannot be read, or the signature not be written.
    """
    key: Ed25519PrivateKey = _key(private, "load_pem_private_key", "Ed25519PrivateKey", "private", password=None)
    signature = f"{os.fspath(path)}{SUFFIX}"
    try:
        with open(whole_file.check(path), "rb") as file:
            digest = sha256(file)
        signed = Signature(1, "ed25519", digest, _name(key.public_key()), key.sign(_message(digest)).hex())
        whole_file.write(signature, dumps(signed.to_json()) + b"\n")
    except OSError as error:
        raise ArtifactError(f"{os.fspath(path)}: cannot be signed: {error.strerror or error}") from error
    return signature


def check(path: str | os.PathLike[str], file: IO[bytes], key: Ed25519PublicKey) -> None:
    """See that the signature beside a path is that of a file, by a key.

    Raises:
        ArtifactError: it is not, or there is none.
    """
    where = f"{os.fspath(path)}{SUFFIX}"
    try:
        with open(where, "rb") as beside:
            signed = decode(beside.read(_LIMIT), Signature)
        signature = bytes.fromhex(signed.signature)
    except (OSError, SchemaError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(
            f"{os.fspath(path)}: refused: its signature {where} cannot be read: {reason}\n"
            "Get the signature from where the artifact came from, or 'covan sign' it."
        ) from error
    if signed.key != _name(key):
        raise ArtifactError(
            f"{os.fspath(path)}: refused: it is signed by the key {signed.key[:16]}, and this is {_name(key)[:16]}\n"
            "Give the key of who made it."
        )
    digest = sha256(file)
    try:
        key.verify(signature, _message(digest))
    except _cryptography("InvalidSignature") as error:
        raise ArtifactError(
            f"{os.fspath(path)}: refused: the signature {where} is not of this file: its SHA-256 is {digest}\n"
            "The file or the signature was changed: get both again."
        ) from error


def _message(digest: str) -> bytes:
    return _PURPOSE + digest.encode()


def _name(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _key(path: str | os.PathLike[str], load: str, kind: str, which: str, **how: Any) -> Any:
    serialization = _cryptography("serialization")
    try:
        whole_file.check(path)
        if not Path(path).is_file():
            raise ValueError("it is no file")
        with open(path, "rb") as file:
            key = getattr(serialization, load)(file.read(_LIMIT), **how)
    except (OSError, ValueError, TypeError) as error:  # TypeError: it is encrypted
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(
            f"{os.fspath(path)}: no {which} key can be read there: {reason}\nGive a file of 'covan keygen'."
        ) from error
    if not isinstance(key, getattr(_cryptography("ed25519"), kind)):
        raise InputError(f"{os.fspath(path)}: it is no {which} key for Ed25519\nGive one of 'covan keygen'.")
    return key


def _cryptography(name: str) -> Any:
    """A part of the library, which only signatures need."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InputError("signatures need the package cryptography: pip install 'covan-mlir[sign]'") from error
    return {"InvalidSignature": InvalidSignature, "serialization": serialization, "ed25519": ed25519}[name]
