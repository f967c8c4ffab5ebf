"""``covan info``, ``keygen``, ``sign`` and ``verify-signature``: what an artifact is, and who made it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from covan_mlir.tools import cli_info
from covan_mlir.tools.cli_options import Artifact, Debug


def info(
    file: Artifact,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    debug: Debug = False,
) -> None:
    """Show what an artifact is: its SHA-256, what made it, what its programs take and give. Runs nothing of it.

    Of a model of another framework (ONNX, TensorFlow, JAX, StableHLO): what it takes and gives, its operators, and all
    that is not compiled; exits with 1 if there is any.

    \b
    covan info model.covan
    covan info model.covan --json
    covan info model.onnx
    covan info model.tflite
    """
    if cli_info.is_model(file):
        raise typer.Exit(cli_info.show(file, as_json))
    from covan_mlir.artifacts import artifact, signing

    facts: dict[str, Any] = {}

    def opened(raw: IO[bytes]) -> None:
        facts["size"], facts["sha256"] = os.fstat(raw.fileno()).st_size, signing.sha256(raw)

    contents = artifact.read(file, opened)
    facts |= {
        "signature": os.path.exists(f"{file}{signing.SUFFIX}"),
        "versions": dict(contents.versions),
        "targets": [variant.target for variant in contents.variants],
        "specialised": [version.name for version in contents.specialised],
        "inputs": [artifact.readable(leaf) for leaf in contents.signature.inputs],
        "outputs": [artifact.readable(leaf) for leaf in contents.signature.outputs],
        "weights": len(contents.weights),
        "states": len(contents.states),
    }
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    print(f"{file}: {facts['size']:,} bytes")
    print(f"sha256     {facts['sha256']}")
    signature = f"{file}{signing.SUFFIX}, not checked here" if facts["signature"] else "none"
    print(f"signature  {signature}")
    print(f"made by    {versions}")
    for name in ("targets", "inputs", "outputs"):
        print(f"{name:<10} {', '.join(facts[name])}")
    if contents.specialised:
        print(f"for sizes  {'; '.join(facts['specialised'])}")
    print(f"tensors    {facts['weights']} weights, {facts['states']} states")


def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the files NAME.key and NAME.pub.")],
    debug: Debug = False,
) -> None:
    """Make a pair of keys: NAME.key signs and stays with its owner, NAME.pub is for all who check."""
    from covan_mlir.artifacts import signing

    digest = signing.new_keys(f"{name}.key", f"{name}.pub")
    print(f"{name}.key, {name}.pub: key {digest[:16]}")


def sign(
    file: Artifact,
    key: Annotated[str, typer.Option("--key", metavar="FILE.key", help="The private key.")],
    debug: Debug = False,
) -> None:
    """Sign an artifact: writes FILE.covan.sig.

    \b
    covan keygen releases
    covan sign model.covan --key releases.key
    """
    from covan_mlir.artifacts import signing

    print(signing.sign(file, key))


def verify_signature(
    file: Artifact,
    key: Annotated[str, typer.Option("--key", metavar="FILE.pub", help="The public key.")],
    debug: Debug = False,
) -> None:
    """Check that FILE.covan.sig is the signature of FILE.covan by a key; 'covan run --key' does so, too.

    \b
    covan verify-signature model.covan --key releases.pub
    """
    from covan_mlir.artifacts import artifact, signing

    signer = signing.public_key(key)
    artifact.read(file, lambda raw: signing.check(file, raw, signer))
    print(f"{file}: signed by {Path(key).name}")
