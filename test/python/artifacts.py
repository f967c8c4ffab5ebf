"""Artifacts for tests: small contents, and files that an attacker could have written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from covan_mlir.artifacts import archive, artifact
from covan_mlir.artifacts.artifact import Blob, Contents
from covan_mlir.artifacts.pytree import LEAF, Tree
from covan_mlir.artifacts.schema import MutatedBuffer
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import ArtifactError
from covan_mlir.fred.certificate import Certificate, Proof
from covan_mlir.lineage import Lineage
from covan_mlir.provenance import lineage_json
from covan_mlir.provenance.fusion import FusionRecord, Sweep
from covan_mlir.provenance.model import Action, Fate, Frame, Group, Part, Site

ONE_LEAF = Tree("tuple", (Tree("tuple", (LEAF,)), Tree("dict")))


def relaxed(examples: int) -> settings:
    """For tests that write files: the folder of a module serves all examples."""
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


def lineage() -> Lineage:
    frames = (Frame("/home/me/model.py", 12, "forward"), Frame("/torch/nn.py", 3, "linear", internal=True))
    actions = [
        Action(
            0,
            "linear",
            "aten.linear.default",
            "mlp.0",
            frames,
            ("f32[2, 4]",),
            (Part(0, 0, "mm", "aten.mm", (), (), (0,), args='[[{"a":0,"of":"f32[2, 4]"}],[]]'),),
        ),
        Action(
            1,
            "view",
            "aten.view.default",
            "",
            frames[:1],
            ("f32[8]",),
            (Part(1, 1, "view", "aten.view", (0,), (), args='[[{"p":0},[8]],[]]'),),
        ),
    ]
    return Lineage(
        actions,
        [Site(0, "main_dispatch_0", "call", (0,), (0,), views=(1,))],
        [[None, 0], []],
        [Fate("dispatched", (0,), "iree:dispatch-creation"), Fate("view", (0,), "iree:import")],
        {0: Fate("dispatched", (0,), "iree:dispatch-creation"), 1: Fate("merged", (0,), "iree:import", 0)},
        [("torch-to-linalg", {0: {"linalg.matmul": 1}, 1: None})],
        groups=[Group("attention@0", "block", (0, 1)), Group("mlp@0", "function", (0,))],
        tags={0: frozenset({"audit:pii", "hot"}), 1: frozenset({"hot"})},
        fusions=[fusion(), FusionRecord("a chain of 2 reductions", (1,), reason="its tiles do not fit")],
    )


def fusion() -> FusionRecord:
    """A chain that became the kernel of site 0."""
    proof = Proof("one element", "a = b", (), ("exp(0) = 1",), ("z3",), "proved", "", 0.001)
    return FusionRecord(
        "a chain of 1 reduction",
        (0,),
        "main_dispatch_0",
        chain=("l[i] = add[j] (x)",),
        sweeps=(Sweep(("j",), "", ("l.new = l.old + l.local",)),),
        certificates=(Certificate("repair of l", (proof,)),),
        refusals=("q cannot follow l: no law",),
        guards=("m where m.new == -inf: x = [-inf]",),
        schedule={"shape": "rows", "parallel": [["i", 4]]},
        seconds=1.5e-6,
        template="rows",
        measured=1.2e-6,
    )


def variant(**changes: Any) -> Variant:
    whole = Variant(
        target="cpu",
        program=b"vmfb" * 50,
        lineage=lineage(),
        info={"frontend": "linalg", "seconds": {"export": 0.25}},
        requires={"driver": "local", "features": ["avx2"]},
    )
    return replace(whole, **changes)


def contents(**changes: Any) -> Contents:
    signature = Signature(
        in_tree=ONE_LEAF,
        out_tree=LEAF,
        inputs=(Leaf("tensor", "float32", (2, "s0"), name="x"),),
        outputs=(Leaf("tensor", "float32", (2, "2*s0 + 1")),),
        states=(MutatedBuffer("running_mean", "float32", (3,)),),
        results=(("state", 0), ("output", 0)),
        parameters=("x",),
        symbols={"s0": (2, None)},
    )
    whole = Contents(
        variants=(variant(), variant(target="vulkan:lavapipe", program=b"spir" * 3)),
        signature=signature,
        device="auto",
        versions={"covan": "0.1.0", "torch": "2.13.0"},
        weights={"w": Blob("bfloat16", (3, 2), b"0123456789ab"), "empty": Blob("int64", (0, 5), b"")},
        states={"running_mean": Blob("float32", (3,), np.arange(3, dtype=np.float32))},
    )
    return replace(whole, **changes)


def assert_equal(actual: Contents, expected: Contents) -> None:
    assert len(actual.variants) == len(expected.variants)
    for got, put in zip(actual.variants, expected.variants, strict=True):
        assert (got.target, bytes(got.program)) == (put.target, bytes(put.program))
        assert lineage_json.dump(got.lineage) == lineage_json.dump(put.lineage)
        assert (dict(got.info), dict(got.requires)) == (dict(put.info), dict(put.requires))
    assert repr(actual.signature) == repr(expected.signature)  # repr: nan is not equal to itself
    assert (actual.device, dict(actual.versions)) == (expected.device, dict(expected.versions))
    for held, wanted in ((actual.weights, expected.weights), (actual.states, expected.states)):
        assert list(held) == list(wanted)
        for name, blob in wanted.items():
            assert (held[name].dtype, held[name].shape) == (blob.dtype, tuple(blob.shape))
            data = blob.data.tobytes() if isinstance(blob.data, np.ndarray) else bytes(blob.data)
            assert bytes(held[name].data) == data


def refused(path: str | os.PathLike[str]) -> str:
    """The message with which `read` refuses a file: path, reason, and what to do."""
    with pytest.raises(ArtifactError) as info:
        artifact.read(path)
    first, _, advice = str(info.value).partition("\n")
    assert os.fspath(path) in first
    assert advice
    assert "\n" not in advice
    return first


def forge(path: Path, edit: Callable[[dict[str, bytes]], object], *, relist: bool = True, **infos: Any) -> None:
    """Rewrite an artifact as an attacker who knows the format would: hashes, sizes and seal agree again.

    Args:
        edit: changes the members in place.
        relist: list the members' new sizes and hashes in the manifest.
        infos: ``rename`` (what a member is called in the zip), ``attributes`` (external_attr), ``twice`` (a name).
    """
    with zipfile.ZipFile(path) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    edit(members)
    if relist:
        manifest = json.loads(members["manifest.json"])
        manifest["members"] = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in members.items()
            if name != "manifest.json"
        }
        members["manifest.json"] = json.dumps(manifest).encode()
    stored = []
    with open(path, "wb+") as file:
        with zipfile.ZipFile(file, "w") as zipped:
            zipped.comment = b"0" * 64
            for name, data in [*members.items(), *((n, members[n]) for n in infos.get("twice", ()))]:
                plain = not name.endswith(".json")
                info = archive._aligned(name, len(data), file.tell()) if plain else zipfile.ZipInfo(name)
                info.filename = info.orig_filename = infos.get("rename", {}).get(name, name)
                info.external_attr = infos.get("attributes", {}).get(name, (stat.S_IFREG | 0o644) << 16)
                info.compress_type = 0 if plain else 8
                with zipped.open(info, "w") as out:
                    start = file.tell()
                    out.write(data)
                if plain:
                    stored.append((start, start + len(data)))
        seal = archive._seal(file, stored)
        file.seek(-64, os.SEEK_END)
        file.write(seal)


def edit_json(member: str, change: Callable[[Any], Any]) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        value = json.loads(members[member])
        members[member] = json.dumps(change(value) or value).encode()

    return edit
