"""Signatures of artifacts: whose they are, and that nothing of a file is read before they are checked."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from artifacts import contents
from command_line import fails
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

import covan_mlir
from covan_mlir import ArtifactError, InputError
from covan_mlir.artifacts import artifact, signing
from covan_mlir.tools import cli


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.covan"
    artifact.write(file, contents())
    signing.new_keys(tmp_path / "a.key", tmp_path / "a.pub")
    signing.sign(file, tmp_path / "a.key")
    return file


def covan(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What the command prints."""
    assert cli.main(args) == 0
    return capsys.readouterr().out


def read(path: Path, key: str = "a.pub") -> artifact.Contents:
    signer = signing.public_key(path.with_name(key))
    return artifact.read(path, lambda file: signing.check(path, file, signer))


def test_a_signed_artifact(path: Path) -> None:
    assert read(path).signature == artifact.read(path).signature
    signed = json.loads(Path(f"{path}.sig").read_text())
    assert signed["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    # The library, asked as anybody would who knows the format.
    public = serialization.load_pem_public_key(path.with_name("a.pub").read_bytes())
    assert isinstance(public, ed25519.Ed25519PublicKey)
    public.verify(bytes.fromhex(signed["signature"]), b"covan artifact, SHA-256: " + signed["sha256"].encode())
    assert stat.S_IMODE(os.stat(path.with_name("a.key")).st_mode) & 0o077 == 0


def test_changed_files_are_refused_before_they_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "read_archive", lambda file: pytest.fail("it was read"))
    whole = path.read_bytes()
    for changed in (whole[:-1], whole + b"\0", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b""):
        path.write_bytes(changed)
        with pytest.raises(ArtifactError, match="is not of this file: its SHA-256 is"):
            read(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("", "it is not JSON"),
        ("{}", "missing required field"),
        ("[" * 10_000, "cannot be read"),
        ('{"format":2}', "cannot be read"),
    ],
)
def test_signatures_that_are_none(path: Path, text: str | None, why: str) -> None:
    signature = Path(f"{path}.sig")
    signature.unlink()
    if text is not None:
        signature.write_text(text)
    with pytest.raises(ArtifactError, match=why):
        read(path)


@pytest.mark.parametrize(("field", "value"), [("signature", "zz"), ("signature", "00" * 64), ("sha256", "0" * 63)])
def test_changed_signatures(path: Path, field: str, value: str) -> None:
    signature = Path(f"{path}.sig")
    signature.write_text(json.dumps(json.loads(signature.read_text()) | {field: value}))
    with pytest.raises(ArtifactError, match="refused"):
        read(path)


def test_another_key(path: Path) -> None:
    signing.new_keys(path.with_name("b.key"), path.with_name("b.pub"))
    with pytest.raises(ArtifactError, match="signed by the key"):
        read(path, "b.pub")
    signing.sign(path, path.with_name("b.key"))
    read(path, "b.pub")


def test_what_is_no_key(path: Path) -> None:
    (path.with_name("text")).write_text("key")
    rsa_key = rsa.generate_private_key(65537, 2048).public_key()
    encoding = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    path.with_name("rsa").write_bytes(rsa_key.public_bytes(*encoding))
    for name in ("text", "rsa", "a.key", "none", ".", "x\0y"):
        with pytest.raises(InputError, match="key"):
            signing.public_key(path.parent / name if name != "x\0y" else name)
    with pytest.raises(InputError, match="no private key"):
        signing.sign(path, path.with_name("a.pub"))
    with pytest.raises(InputError, match="there already"):
        signing.new_keys(path.with_name("a.key"), path.with_name("c.pub"))


def test_load_and_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    covan_mlir.compile_module(lambda x: x * 2, (np.ones(3, np.float32),)).save("model.covan")
    assert "key" in covan(capsys, "keygen", "mine")
    assert covan(capsys, "sign", "model.covan", "--key", "mine.key") == "model.covan.sig\n"
    assert "signed by mine.pub" in covan(capsys, "verify-signature", "model.covan", "--key", "mine.pub")
    for isolated in (False, True):
        exe = covan_mlir.load("model.covan", key="mine.pub", isolated=isolated)
        np.testing.assert_array_equal(exe(np.ones(3, np.float32)), np.full(3, 2, np.float32))
        exe.close()
    assert "output 0" in covan(capsys, "run", "model.covan", "--key", "mine.pub", "--isolated", "--memory", "500")
    told = covan(capsys, "info", "model.covan")
    assert hashlib.sha256(Path("model.covan").read_bytes()).hexdigest() in told
    facts = json.loads(covan(capsys, "info", "model.covan", "--json"))
    assert facts["signature"] is True
    assert (facts["inputs"], facts["outputs"]) == (["x: float32[3]"], ["mul: float32[3]"])
    Path("model.covan").write_bytes(b"PK\3\4")
    assert "is not of this file" in fails(capsys, "run", "model.covan", "--key", "mine.pub")[0]
    assert "verify-signature" not in fails(capsys, "verify-signature", "model.covan", "--key", "none.pub")[0]
