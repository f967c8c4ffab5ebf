"""Command lines that nobody should type, and IR that nobody should write: one clear line, no traceback, no wait."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from artifacts import contents
from command_line import fails
from limits import HANG, part

from covan_mlir.artifacts import artifact
from covan_mlir.passes.framework import extensions
from covan_mlir.support import whole_file
from covan_mlir.tools import opt_diagnostics

PATHS = [
    ".",
    "",
    "x\0y.covan",
    "\udcff.covan",
    "\ud800.covan",
    "/",
    "pipe",
    "/dev/null",
    "no/folder",
    "file/x",
    "x" * 5000,
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").write_text("text")
    artifact.write("model.covan", contents())


@pytest.mark.parametrize("command", ["run", "explain", "verify", "report", "info", "profile"])
@pytest.mark.parametrize("path", PATHS)
def test_paths_to_read(command: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = 2 if "\0" in path or path == "\ud800.covan" else 1
    error = fails(capsys, command, path, code=code)[0]
    assert "unexpected" not in error
    assert len(error) <= 2100


def test_links_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of other users' processes, for one."""

    def denied(path: str, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", path)

    os.symlink("model.covan", "link")
    monkeypatch.setattr(os, "readlink", denied)
    error = fails(capsys, "report", "link/x")[0]
    assert "unexpected" not in error


@pytest.mark.parametrize("path", ["/", "pipe", "no/folder/x.html", "file/x", "x\0y", "x" * 5000])
def test_paths_to_write(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = fails(capsys, "report", "model.covan", "--output", path, code=2 if "\0" in path else 1)[0]
    assert "unexpected" not in error


def test_strange_names_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    os.rename("model.covan", "\udcff.covan")
    code = "import sys\nfrom covan_mlir.tools.cli import main\nsys.exit(main())"
    for command in ("explain", "info", "report"):
        done = subprocess.run([sys.executable, "-c", code, command, "\udcff.covan"], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    assert Path("\udcff.html").stat().st_size


def test_no_arguments() -> None:
    code = "import sys\nfrom covan_mlir.tools.cli import main\nsys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.lstrip().startswith("Usage: covan")
    assert done.stderr == ""


def test_command_lines_of_all_kinds() -> None:
    """A seeded part of bench/command_lines.py."""
    bench = Path(__file__).resolve().parents[2] / "bench" / "command_lines.py"
    command = [sys.executable, str(bench), "model.covan", "--count", "8", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- files that are written whole -------------------------------------------------------------------------------------


def test_what_fails_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("page.html").write_text("old")
    with contextlib.suppress(RuntimeError), whole_file.writing("page.html") as file:
        file.write(b"half")
        raise RuntimeError
    assert Path("page.html").read_text() == "old"
    assert sorted(os.listdir()) == ["file", "model.covan", "page.html", "pipe"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device here")
def test_full_disks() -> None:
    with pytest.raises(OSError, match="No space left"):
        whole_file.write("/dev/full", b"x" * 100_000)


def test_links_and_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    os.symlink("file", "link")
    whole_file.write("link", b"new")
    assert Path("file").read_bytes() == b"new"
    assert os.path.islink("link")
    whole_file.write("/dev/stdout", b"told")
    assert capfd.readouterr().out == "told"


# --- covan-opt --------------------------------------------------------------------------------------------------------


def opt(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "covan_mlir.tools.opt", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


@pytest.mark.parametrize(
    "text",
    ["module {" * 30_000 + "}" * 30_000, "module attributes {a = " + "[" * 100_000 + "]" * 100_000 + "} {}"],
    ids=["regions", "attributes"],
)
def test_ir_that_crashes_the_compiler(text: str) -> None:
    done = opt(text=text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "covan-opt: error: the compiler crashed with SIGSEGV on this input\n"


def test_messages_are_bounded() -> None:
    constant = 'dense<"0x' + "AB" * 200_000 + '"> : tensor<200000xi8>'
    text = f'func.func @f() {{ %0 = arith.constant {constant} "x.y"(%0) : (tensor<200000xi8>) -> () return }}'
    done = opt(text="\n// -----\n".join([text] * 3))
    assert done.returncode == 1
    assert 0 < len(done.stderr) < 1 << 16
    many = "\n// -----\n".join(["func.func @f() { return 1 } // " + "x" * 1000] * 400)
    done = opt("--split-input-file", text=many)
    assert done.returncode == 1
    assert "more diagnostics are not shown" in done.stderr
    assert len(done.stderr) < 1 << 20
    assert len(opt_diagnostics.shortened("x" * 10_000)) < 4_100


def test_pipes(tmp_path: Path) -> None:
    """One that nobody writes to is an error; one that somebody writes to at leisure is read."""
    done = opt("pipe")
    assert done.returncode == 1
    assert "nobody writes to" in done.stderr
    done = opt("-o", "pipe", text="module {}")
    assert done.returncode == 1
    assert "cannot write 'pipe'" in done.stderr
    writer = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1); open('pipe', 'w').write('module {}')"]
    )
    assert opt("pipe").stdout == "module {\n}\n"
    assert writer.wait() == 0


@pytest.mark.parametrize("named", ["pipe", "/dev/zero", ".", "no/file"])
def test_locations_that_name_what_cannot_be_shown(named: str) -> None:
    done = opt(text=f'"func.func"() : () -> () loc("{named}":1:1)')
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"{named}:1:1: error: 'func.func' op requires one region"
    assert len(done.stderr.splitlines()) == 2  # MLIR's note, and no lines of source


def test_expectations_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opt_diagnostics, "_PATIENCE", 0.1)
    text = "// expected-error-re@+1 {{" + "{{(a+)+$}}" + "}}\n"
    told = opt_diagnostics.Diagnostic("error", "a" * 60 + "b", "x.mlir", 2, 1)
    errors = opt_diagnostics.check([told], text, "x.mlir")
    assert [error.message for error in errors] == ["the expected regexes take longer than 0.1 s"]
    for count in ("9" * 5000, "@+" + "9" * 5000):
        errors = opt_diagnostics.check([], "// expected-error " + count + " {{x}}", "x.mlir")
        assert [error.message for error in errors] == ["malformed expectation, see --help"]


def test_paths_of_covan_opt() -> None:
    for path in ("\udcff.mlir", ".", "no/file", "x" * 1500):
        done = opt(path)
        assert done.returncode == 1
        assert done.stderr.startswith("covan-opt: error: cannot read")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("path", ["loop", "x\0y.py", "\udcff.py", ".", "pipe", ""])
def test_files_that_are_no_plugins(path: str) -> None:
    os.symlink("loop", "loop")
    with pytest.raises(extensions.ExtensionError, match=r"cannot load '.*': (not a Python file|it holds)"):
        extensions.load(path)


# --- streams ----------------------------------------------------------------------------------------------------------


COMMANDS = ("cli info model.covan", "cli --help", "opt --help", "opt file", "opt --list-passes")
NOWHERE = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}
UNWRITTEN = [*product(COMMANDS, NOWHERE)]


@pytest.mark.parametrize(("command", "redirection"), part(UNWRITTEN, kept=UNWRITTEN[::3]))
def test_output_that_cannot_be_written(command: str, redirection: str) -> None:
    """Is an error: nobody takes nothing for an answer."""
    if "full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("no full device here")
    Path("file").write_text("module {}")
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m covan_mlir.tools.{command} {redirection}', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"error: standard output cannot be written: {NOWHERE[redirection]}\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_closed_streams() -> None:
    """No file that is opened becomes standard output, and what needs no stream works."""
    Path("file").write_text("module {}")

    def covan_opt(arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f'exec "$0" -m covan_mlir.tools.opt {arguments}', sys.executable]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = covan_opt("file -o out.mlir <&- >&- 2>&-")
    assert (done.returncode, Path("out.mlir").read_text()) == (0, "module {\n}\n")
    done = covan_opt("- <&-")
    assert (done.returncode, done.stderr) == (1, "covan-opt: error: cannot read '-': Bad file descriptor\n")
