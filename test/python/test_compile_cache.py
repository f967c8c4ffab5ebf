"""Programs that were compiled before: they are the same, nothing is compiled for them, and nothing stale is taken."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import covan, fails, said
from limits import part
from torch import nn

import covan_mlir
from covan_mlir import CompileError, CompileOptions, Executable
from covan_mlir.artifacts import artifact
from covan_mlir.lowering import pool
from covan_mlir.lowering.cache import answers, question, store
from covan_mlir.lowering.cache.store import Store
from covan_mlir.lowering.request import Job
from covan_mlir.machine.description import PRESETS
from covan_mlir.provenance import lineage_json
from covan_mlir.support import source_digest

X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def _said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged once a process is logged once a test."""
    monkeypatch.setattr(store, "_logged", set())


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs, which is not there yet."""
    monkeypatch.setenv(answers.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "programs"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Each job that reaches a worker."""
    jobs: list[Job] = []
    once = pool._once

    def counted(bytecode: bytes, job: Job, *rest: object) -> object:
        jobs.append(job)
        return once(bytecode, job, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pool, "_once", counted)
    return jobs


class Net(nn.Module):
    """A kernel of our own, IREE's, a weight, and a buffer that changes."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(64.0).view(8, 8) / 64)
            self.linear.bias.fill_(scale)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return torch.softmax(self.linear(x), -1).relu()


def compiled(model: nn.Module | None = None, **options: object) -> Executable:
    chosen = CompileOptions(**{"fuse_reductions": "always", **options})  # type: ignore[arg-type]
    return covan_mlir.compile_module(model or Net().eval(), (X,), options=chosen)


def test_second_compilation_gives_the_same_program(programs: Path, asked: list[Job], tmp_path: Path) -> None:
    first, second = compiled(), compiled()
    assert len(asked) == 1
    assert [path.suffix for path in programs.iterdir()] == [".answer"]
    first.save(tmp_path / "first.covan")
    second.save(tmp_path / "second.covan")
    one, two = (artifact.read(tmp_path / f"{name}.covan").variant() for name in ("first", "second"))
    assert one.program == two.program
    assert one.requires == two.requires
    assert lineage_json.write(one.lineage) == lineage_json.write(two.lineage)
    assert two.info["seconds"].keys() == {"cache", "lineage"}
    told = [{k: v for k, v in variant.info.items() if k != "seconds"} for variant in (one, two)]
    assert told[0] == told[1]
    assert torch.equal(first(X), second(X))
    torch.testing.assert_close(second(X), Net().eval()(X))
    assert second.verify().outcome == "yes"


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import logging
logging.basicConfig(level=logging.INFO)
from test_compile_cache import compiled
exe = compiled()
exe.save(sys.argv[1])
print(sorted(exe.info["seconds"]))
"""


def processes(programs: Path, tmp_path: Path, names: list[str]) -> list[subprocess.Popen[str]]:
    code = PROGRAM.format(folder=str(Path(__file__).parent))
    # The hash of strings differs between processes: the order of a set must not decide on anything.
    environment = {**os.environ, answers.VARIABLE: str(programs.parent)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / name)],
            env={**environment, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, name in enumerate(names)
    ]


def test_processes_share_programs(programs: Path, tmp_path: Path, asked: list[Job]) -> None:
    """Two ask the same at once; what is there afterwards is whole, and this process takes it."""
    for process in processes(programs, tmp_path, ["a.covan", "b.covan"]):
        assert process.communicate()[0].startswith("[")
        assert process.returncode == 0
    (entry,) = programs.iterdir()
    assert entry.suffix == ".answer"
    kept = compiled()
    assert asked == []
    kept.save(tmp_path / "kept.covan")
    theirs = [artifact.read(tmp_path / name).variant().program for name in ("a.covan", "b.covan")]
    assert artifact.read(tmp_path / "kept.covan").variant().program in theirs


def test_what_is_not_the_same_is_compiled(programs: Path, asked: list[Job]) -> None:
    """Weights in the program, flags, options; not values of weights outside of it, nor what only failures need."""
    compiled()
    compiled(Net(3.0).eval())
    compiled(iree_flags=("--iree-opt-level=O1",))
    compiled(fuse_reductions=False)
    compiled(external_weight_bytes=1)
    assert len(asked) == 5
    outside = Net(3.0).eval()
    exe = compiled(outside, external_weight_bytes=1)
    torch.testing.assert_close(exe(X), Net(3.0).eval()(X))
    compiled(timeout=1000.0, reproducer=str(programs / "failing.mlir"))
    compiled(device="local-sync")
    assert len(asked) == 5
    assert len(list(programs.iterdir())) == 5


@pytest.mark.parametrize("how", ["option", "environment"])
def test_off(how: str, programs: Path, asked: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv(answers.VARIABLE, answers.OFF)
    for _ in range(2):
        compiled(cache=how == "environment")
    assert len(asked) == 2
    assert not programs.exists()
    assert "cache" not in CompileOptions(cache=False).to_json()


def test_failures_are_not_kept(programs: Path, asked: list[Job]) -> None:
    for _ in range(2):
        with pytest.raises(CompileError, match="refuses a flag"):
            compiled(iree_flags=("--no-such-flag",))
    assert len(asked) == 2
    assert not programs.exists()


BASE = Job("auto", ("--iree-hal-target-device=local",), machine=PRESETS["avx2"])


def test_every_part_of_a_question_counts(tmp_path: Path) -> None:
    extension = tmp_path / "template.py"
    extension.write_text("a = 1")
    asked = question.name_of(b"module", BASE, "here")
    assert len(asked) == 64
    assert question.name_of(b"module", replace(BASE, reproducer="failing.mlir"), "here") == asked
    assert PRESETS["avx2"] != PRESETS["avx512"]
    others = [
        question.name_of(b"modulo", BASE, "here"),
        question.name_of(b"module", BASE, "there"),
        question.name_of(b"module", replace(BASE, frontend="torch"), "here"),
        question.name_of(b"module", replace(BASE, flags=(*BASE.flags, "--iree-opt-level=O3")), "here"),
        question.name_of(b"module", replace(BASE, target="cpu:znver4"), "here"),
        question.name_of(b"module", replace(BASE, kind="cuda"), "here"),
        question.name_of(b"module", replace(BASE, devices="#hal.device.target<x>"), "here"),
        question.name_of(b"module", replace(BASE, weights=("w",)), "here"),
        question.name_of(b"module", replace(BASE, provenance=False), "here"),
        question.name_of(b"module", replace(BASE, trace="passes"), "here"),
        question.name_of(b"module", replace(BASE, fuse=True), "here"),
        question.name_of(b"module", replace(BASE, fuse="always"), "here"),
        question.name_of(b"module", replace(BASE, functions=(("op", "text", "name"),)), "here"),
        question.name_of(b"module", replace(BASE, attached=True), "here"),
        question.name_of(b"module", replace(BASE, machine=None), "here"),
        question.name_of(b"module", replace(BASE, machine=PRESETS["avx512"]), "here"),
        question.name_of(b"module", replace(BASE, extensions=(str(extension),)), "here"),
    ]
    extension.write_text("a = 2")
    others.append(question.name_of(b"module", replace(BASE, extensions=(str(extension),)), "here"))
    assert len({asked, *others}) == len(others) + 1


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the place of covan's."""
    folder = tmp_path / "covan_sources"
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/rule.py"):
        (folder / name).write_text("")
    monkeypatch.setattr(question, "_PACKAGES", ("covan_sources",))
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_surroundings_are_sources_versions_and_environment(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [question.surroundings()]
    assert question.surroundings() == seen[0]
    (sources / "inner" / "rule.py").write_text("x = 1")
    seen.append(question.surroundings())
    (sources / "inner" / "rule.py").rename(sources / "inner" / "law.py")
    seen.append(question.surroundings())
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    seen.append(question.surroundings())
    monkeypatch.setattr(question, "model", lambda: "another processor")
    seen.append(question.surroundings())
    monkeypatch.setattr(question, "_versions", lambda: [("torch-mlir", "29991231")])
    seen.append(question.surroundings())
    assert len(set(seen)) == len(seen)
    monkeypatch.setenv("COLUMNS", "100")
    assert question.surroundings() == seen[-1]


def test_covans_own_sources_are_all_there() -> None:
    named = dict(source_digest.of_packages(question._PACKAGES))
    for name in ("lowering/job.py", "passes/__init__.py", "fred/fuse.py", "version.py", "lowering/kernels/select.py"):
        assert named[f"covan_mlir/{name}"]


def test_edited_compilers_keep_nothing(programs: Path, asked: list[Job], sources: Path) -> None:
    """A worker that is older than an edit of covan's sources compiles as before: its answer is not to be kept."""
    pool.shutdown()
    pool.prepare()
    (sources / "inner" / "rule.py").write_text("x = 1")
    compiled()
    assert not programs.exists()
    pool.shutdown()
    for _ in range(2):
        compiled()
    assert len(asked) == 2
    (sources / "inner" / "rule.py").write_text("x = 2")
    compiled()
    assert len(asked) == 3
    pool.shutdown()


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (replace(BASE, extra=(("iree:flow", "steps.py:count"),)), "extra steps"),
        (replace(BASE, flags=("--mlir-print-ir-after-all",)), "--mlir-print-ir-after-all"),
        (replace(BASE, flags=("--iree-hal-dump-executable-files-to=here",)), "dump"),
        (replace(BASE, flags=("--iree-codegen-tuning-spec-path=specs/spec.mlir",)), "spec.mlir"),
        (replace(BASE, flags=(f"--iree-codegen-tuning-spec-path={os.curdir}",)), "tuning"),
    ],
)
def test_what_does_more_than_answer_is_not_kept(
    job: Job, why: str, programs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert answers.place(b"module", BASE) is not None
    assert answers.place(b"module", job) is None
    assert why in caplog.text


def test_extra_steps_run_each_time(programs: Path, asked: list[Job], tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        textwrap.dedent(f"""
            def count(state):
                with open({str(tmp_path / "runs")!r}, "a") as file:
                    file.write("x")
            """)
    )
    for _ in range(2):
        compiled(extra_steps=(("torch-to-linalg", f"{tmp_path / 'steps.py'}:count"),))
    assert (tmp_path / "runs").read_text() == "xx"
    assert not programs.exists()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def beheaded(path: Path) -> None:
    """It says that its head is longer than the file."""
    content = path.read_bytes()
    path.write_bytes(content[:32] + b"\xff" * 8 + content[40:])


@pytest.mark.parametrize("damage", part([truncated, emptied, flipped, beheaded], kept=[flipped, beheaded]))
def test_damage_is_a_miss(
    damage: Callable[[Path], None], programs: Path, asked: list[Job], caplog: pytest.LogCaptureFixture
) -> None:
    compiled()
    (entry,) = programs.iterdir()
    whole = entry.stat().st_size
    damage(entry)
    torch.testing.assert_close(compiled()(X), Net().eval()(X))
    assert len(asked) == 2
    assert f"{entry} is damaged" in caplog.text
    assert entry.stat().st_size == pytest.approx(whole, rel=0.01)  # written again


def test_folder_that_cannot_be_written(
    tmp_path: Path, asked: list[Job], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file is in its place, which keeps out superusers, too: said once, and compiling goes on."""
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv(answers.VARIABLE, str(tmp_path / "cache"))
    for _ in range(2):
        torch.testing.assert_close(compiled()(X), Net().eval()(X))
    assert len(asked) == 2
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING and "not kept" in r.getMessage()]
    assert len(warnings) == 1


def test_sources_are_those_of_packages() -> None:
    """An editable install finds subpackages in the repository, where tests and environments lie, too."""
    names = [name for name, _ in source_digest.of_packages(["covan_mlir"])]
    assert "covan_mlir/version.py" in names
    assert not [
        name for name in names if name.startswith(("covan_mlir/.venv/", "covan_mlir/test/", "covan_mlir/bench/"))
    ]


def test_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(answers.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert answers.store() == Store(tmp_path / "covan" / "programs", 2 << 30)


def test_command_line(
    programs: Path, here: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    compile_ = ("compile", "models.py:make", "-o", "m.covan")
    said(capsys, *compile_, "--no-cache")
    assert said(capsys, "cache").startswith(f"{programs}: 0 programs, 0 bytes of at most 2.0 GiB\n")
    said(capsys, *compile_)
    assert said(capsys, "cache").startswith(f"{programs}: 1 programs, ")
    assert "compiled before" not in caplog.text
    again = covan(*compile_, "--debug", cwd=here)  # in another process
    assert "compiled before" in again.stderr
    assert json.loads(said(capsys, "explain", "m.covan", "--json"))["found"]
    assert said(capsys, "cache", "--clear").startswith(f"{programs}: 0 programs, ")


def test_command_without_a_folder(
    programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.mkdir(parents=True)
    programs.chmod(0o777)
    error, hint = fails(capsys, "cache", "--clear")
    assert error == f"others may write to {programs}; chmod go-w allows it to be used"
    assert hint == f"remove {programs}, or set COVAN_CACHE to another folder"
    monkeypatch.setenv(answers.VARIABLE, answers.OFF)
    monkeypatch.setenv(answers.KERNELS_VARIABLE, answers.OFF)
    assert fails(capsys, "cache") == ("compiled programs are not kept", "unset COVAN_CACHE, or set it to a folder")
