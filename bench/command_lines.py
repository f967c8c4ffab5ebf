"""Command lines of covan and covan-opt that nobody should type: each ends by itself, with an exit code and one line.

    python bench/command_lines.py --count 600 --seed 1 [model.covan]

Options come from the programs' own parsers, so a new one is tried without being listed here. Most lines run in forks of
this process, which has imported everything; those with odd streams are started as a shell does. Prints what was wrong:
signals, waits, tracebacks, exit codes that no page lists, errors without a line or with many, output without end,
temporary files left behind.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch  # once, for all forks
import typer.main

from covan_mlir.tools import cli, cli_models, cli_values, opt  # noqa: F401  # cli_models: for forks

Program = Literal["covan", "covan-opt"]
Streams = Literal["usual", "stdin closed", "stdout closed", "stderr closed", "all closed", "disk full", "nobody reads"]

HANG = 600.0
"""Seconds after which a line is taken to wait for ever."""
_CPU = 120  # seconds of a line: a compilation takes some
_DATA = 4 << 30  # bytes of a line: what is too large for a machine is an error on this one
_LINE = 2_100  # characters of a line that tells of an error
_TOLD = {"covan": 20_000, "covan-opt": 1 << 20}  # characters on standard error
_CODES = {"covan": {0, 1, 2, 3}, "covan-opt": {0, 1}}

MODEL = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Softmax(-1)).eval()
number = 3
def make():
    return net, (torch.ones(2, 4),)
def broken():
    raise RuntimeError("no weights here\\nat all")
def leaves():
    raise SystemExit(3)
def four():
    return 1, 2, 3, 4
"""
_PATHS = (
    "model.covan", "model.covan", "damaged.covan", "empty", "text", "folder", "pipe", "unreadable", "binary", "link",
    "nowhere", "", ".", "-", "folder/", "text/x", "no/folder/x", "x" * 300, "x" * 5000, "x\0y", "\udcff", "\ud800",
    "a b\n\x1b[31mc", "loop", "\u202ex", "model.py", "model.covan.sig", "--", "-o", "%s%n", "~", "*",
)  # fmt: skip
_DEVICES = ("/", "/dev/null", "/dev/full", "/dev/stdout", "/dev/fd/99", "/proc/self/mem", "/proc/1/root/x")
_TEXTS = (
    "", "0", "1", "-1", "2", "7", "0.5", "1e400", "nan", "-inf", "9" * 30, "9" * 6000, "0x10", "1_000", "x", "x=y",
    "=", "a:b", "model.py:make", "0:0", "x:0", "0:99", "cpu", "cuda", "cpu,cpu", "cpu,", "\0", "\ud800", "\udcff",
    "\x1b[2J", "é" * 500, "json", "html", "line", "site", "module", "passes", "--json", "-h", "(" * 3000,
    "linear=audit:pii", "model.py:3", "--iree-opt-level=O3", "--no-such-flag", "1,2", "tag:x", "group:y", ".*", "[",
    "\\",
)  # fmt: skip
_INPUTS = (
    "2x4xf32", "2x4xf32", "2x4xf32=1", "4xf32", "2x4xi64", "f32", "3", "1.5", "true", "x.npy", "array.npy",
    "empty.npy", "text.npy", "0x0xf32", "99999999x99999999xf32", "999999999999999999x4xf32", "1x" * 70 + "f32",
    "2x4xf32=nan", "2x4xq8", "2x4xi8=1000", "2x4xbool=2", "2x4xf32=", "-1x4xf32", "2x4xcomplex64", "\0.npy",
    "folder/.npy", "pickled.npy",
)  # fmt: skip
_MODELS = (
    "model.py:make", "model.py:net", "model.py:number", "model.py:broken", "model.py:leaves", "model.py:four",
    "model.py:", "model.py", ":make", "model.py:make:make", "text:make", "empty:make", "folder:make", "pipe:make",
    "text.pt2", "empty.pt2", "model.py:__builtins__", "model.py:os.system", "\0:x", "\udcff.py:make",
    "x" * 5000 + ".py:make",
)  # fmt: skip
_PASSES = (
    "canonicalize", "cse", "prov-strip", "prov-lower-locations", "no-such-pass", "", "canonicalize{", "cse{x=1}",
    "\0", "\ud800", "builtin.module(canonicalize)", "builtin.module(" * 2000,
    "builtin.module(func.func(cse),prov-strip)", "fred-raise", "fred-raise{target=nowhere}",
    "builtin.module(cse{a=" + "[" * 3000 + "})", "a" * 10_000, "symbol-dce,symbol-dce", "inline",
)  # fmt: skip
_DEEP = 20_000
_IR = (
    b"module {}", b"", b"\0", b"\xff\xfe", b"ML\xefR", b"ML\xefR" + b"\xff" * 1000, b"func.func @f() { return 1 }",
    b"func.func @f(%a: i32) -> i32 { return %a : i32 }", b"module {" * _DEEP + b"}" * _DEEP,
    b"module attributes {a = " + b"[" * _DEEP + b"]" * _DEEP + b"} {}",
    b"func.func @f(%a: tensor<" + b"9" * 400 + b"xf32>) { return }", b'"a.b"() : () -> ()' * 3000, b"// -----\n" * 5000,
    b"module {} // expected-error {{x}}", b"// expected-error-re@+1 {{{{(a+)+$}}}}\n" + b"a" * 5000,
    b"// expected-error@+99999999999 {{x}}\nmodule {}", b"// expected-error 99999999999 {{x}}\nmodule {}",
    b'func.func @f() { %0 = arith.constant dense<"0x' + b"AB" * 500_000 + b'"> : tensor<500000xi8> return }',
    b'"func.func"() : () -> () loc("pipe":1:1)', b'"func.func"() : () -> () loc("/dev/zero":1:1)',
    b'"func.func"() : () -> () loc("\\00":9:9)',
    b"// expected-error-re@+1 {{{{(a+)+$}}}}\n" + b"a" * 60 + b"b",
    b"// expected-error " + b"9" * 5000 + b" {{x}}\nmodule {}",
    b"#a = #a\nmodule {}", b"!a = tuple<" * _DEEP, b"module { prov.table [ }", b"x" * 1_000_000, b"\n" * 1_000_000,
    b"func.func private @" + b"f" * 100_000 + b"()", b"func.func @f() { cf.br ^" + b"b" * 70_000 + b" }",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A command line, what its standard input holds, and what its streams are."""

    program: Program
    arguments: tuple[str, ...]
    stdin: bytes
    streams: Streams

    def __str__(self) -> str:
        text = " ".join(argument if len(argument) < 60 else argument[:50] + "..." for argument in self.arguments)
        said = "" if self.streams == "usual" else f" ({self.streams})"
        ir = f" <{self.stdin[:40]!r}" if self.stdin else ""
        return f"{self.program} {text!r}{ir}{said}"


@dataclass(frozen=True)
class Ended:
    """How a line ended.

    Attributes:
        status: as a shell's: below 0 for a signal; None if it had to be ended.
    """

    status: int | None
    out: str
    err: str
    left: tuple[str, ...]


# --- command lines ----------------------------------------------------------------------------------------------------


def lines(seed: int) -> Iterator[Line]:
    """Without end; the same for the same seed."""
    rng = random.Random(seed)
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]  # a group's
    while True:
        program: Program = rng.choice(("covan", "covan", "covan-opt"))
        arguments = _covan(commands, rng) if program == "covan" else _covan_opt(rng)
        stdin = rng.choice(_IR) if program == "covan-opt" else b""
        streams: Streams = "usual"
        if rng.random() < 0.12 and not any("\0" in text or "\ud800" in text for text in arguments):
            streams = rng.choice(
                ("stdin closed", "stdout closed", "stderr closed", "all closed", "disk full", "nobody reads")
            )
        yield Line(program, arguments, stdin, streams)


def _covan(commands: dict[str, Any], rng: random.Random) -> tuple[str, ...]:
    if rng.random() < 0.06:
        return tuple(rng.choice((*_TEXTS, *commands)) for _ in range(rng.randrange(4)))
    name = rng.choice(sorted(commands))
    arguments = []
    for parameter in commands[name].params:
        if "--open" in parameter.opts:  # starts a browser
            continue
        if parameter.param_type_name == "argument":
            if rng.random() < 0.95:
                arguments += [_covan_value(name, parameter, rng)] * (2 if rng.random() < 0.03 else 1)
        elif rng.random() < 0.2:
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                option = rng.choice([*parameter.opts, *parameter.secondary_opts])
                arguments += [option] if parameter.is_flag else [option, _covan_value(name, parameter, rng)]
    if rng.random() < 0.1:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(_TEXTS))
    return (name, *arguments)


def _covan_value(command: str, parameter: Any, rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(_TEXTS)
    metavar = parameter.metavar or ""
    if "FACTORY" in metavar:
        return rng.choice((*_MODELS, *_PATHS))
    if metavar == "INPUT":
        return rng.choice(_INPUTS)
    if metavar == "FILE.covan" and rng.random() < 0.5:
        return "model.covan"
    if "FILE" in metavar or metavar == "NAME":
        # Names are added to the paths of keys and signatures: not in folders that are no test's.
        return rng.choice(_PATHS if command in ("keygen", "sign") else (*_PATHS, *_DEVICES))
    return rng.choice(_TEXTS)


def _covan_opt(rng: random.Random) -> tuple[str, ...]:
    arguments: list[str] = []
    for action in opt._argument_parser()._actions:
        if not action.option_strings:
            if rng.random() < 0.4:
                arguments.append(rng.choice((*_PATHS, *_DEVICES)))
        elif rng.random() < 0.12:
            option = rng.choice(action.option_strings)
            arguments.append(option[1:] if rng.random() < 0.2 else option)
            if action.nargs != 0:
                paths = "FILE" in str(action.metavar)
                arguments.append(rng.choice((*_PATHS, *_DEVICES) if paths else _PASSES))
    if rng.random() < 0.05:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(_TEXTS))
    return tuple(arguments)


# --- what becomes of them ---------------------------------------------------------------------------------------------


def lay_out(folder: Path, artifact: Path) -> None:
    """The files that lines name."""
    folder.mkdir()
    whole = artifact.read_bytes()
    (folder / "model.covan").write_bytes(whole)
    (folder / "damaged.covan").write_bytes(whole[: len(whole) // 2])
    (folder / "binary").write_bytes(whole[:200])
    (folder / "model.py").write_text(MODEL)
    for name in ("empty", "empty.npy", "empty.pt2"):
        (folder / name).touch()
    for name in ("text", "text.npy", "text.pt2", "unreadable"):
        (folder / name).write_text("text")
    (folder / "unreadable").chmod(0)
    (folder / "folder").mkdir()
    cli_values.save(str(folder / "array.npy"), torch.ones(2, 4).numpy())
    (folder / "pickled.npy").write_bytes(
        b"\x93NUMPY\x01\0F\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + b" " * 30
    )
    (folder / "link").symlink_to("model.covan")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")


def ended(line: Line, folder: Path) -> Ended:
    """Run a line in a folder, to its end or to `HANG`."""
    before = set(os.listdir(folder.parent))
    stdin, out, err = (folder.parent / name for name in ("stdin", "stdout", "stderr"))
    stdin.write_bytes(line.stdin)
    out.touch()
    err.touch()
    process = _forked(line, folder, stdin, out, err) if line.streams == "usual" else _started(line, folder)
    deadline = time.monotonic() + HANG
    descriptor = os.pidfd_open(process)
    timely = bool(select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0])
    os.close(descriptor)
    if not timely:
        os.killpg(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    texts = [path.read_bytes()[: 2 << 20].decode(errors="replace") for path in (out, err)]
    left = [path.name for path in folder.rglob("*.tmp")] + sorted(
        {*os.listdir(folder.parent)} - before - {"stdin", "stdout", "stderr"}
    )
    return Ended(status if timely else None, texts[0], texts[1], tuple(left))


def _limits() -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA, _DATA))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _forked(line: Line, folder: Path, stdin: Path, out: Path, err: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        _limits()
        for path, number, flags in ((stdin, 0, os.O_RDONLY), (out, 1, os.O_WRONLY), (err, 2, os.O_WRONLY)):
            os.dup2(os.open(path, flags | os.O_APPEND), number)
        os.chdir(folder)
        sys.argv = [line.program, *line.arguments]
        with contextlib.suppress(SystemExit):
            code = cli.main() if line.program == "covan" else opt.main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


_STARTS = {
    "stdin closed": "<&- >../stdout 2>../stderr",
    "stdout closed": "<../stdin >&- 2>../stderr",
    "stderr closed": "<../stdin >../stdout 2>&-",
    "all closed": "<&- >&- 2>&-",
    "disk full": "<../stdin >/dev/full 2>../stderr",
    "nobody reads": "<../stdin 2>../stderr",
}


def _started(line: Line, folder: Path) -> int:
    module = "cli" if line.program == "covan" else "opt"
    command = [sys.executable, "-m", f"covan_mlir.tools.{module}", *line.arguments]
    reader, writer = os.pipe()
    os.close(reader)
    script = f'exec "$@" {_STARTS[line.streams]}'
    process = subprocess.Popen(["sh", "-c", script, "sh", *command], cwd=folder, stdout=writer, preexec_fn=_limits)
    os.close(writer)
    return process.pid


def wrong(line: Line, end: Ended) -> str | None:
    """What a line's end must not be."""
    if end.status is None:
        return "waits"
    if end.status < 0:
        return f"ended by {signal.Signals(-end.status).name}"
    if end.status not in _CODES[line.program]:
        return f"exit code {end.status}"
    if end.left:
        return f"left {', '.join(end.left)}"
    if len(end.err) > _TOLD[line.program] and "--debug" not in line.arguments:
        return f"{len(end.err)} characters on standard error"
    if "--debug" not in line.arguments and "Traceback (most recent call last)" in end.out + end.err:
        return "a traceback"
    errors = [text for text in end.err.splitlines() if re.match(r"covan(-opt)?: error: |.*: error: ", text)]
    if any(text.startswith("covan: error: unexpected ") for text in errors):
        return "an error that nobody thought of"
    if any(len(text) > _LINE for text in errors) and line.program == "covan":
        return "a long line"
    if end.status == 0 and errors and "--verify-diagnostics" not in line.arguments:
        return "an error, and exit code 0"
    if "stderr" in line.streams or line.streams == "all closed":
        return None
    told = errors or (end.out and line.program == "covan")  # a verdict, or help
    if end.status in (1, 2) and not told and line.streams == "usual":
        return "no error is told"
    if line.program == "covan" and len(errors) > 1 and "--debug" not in line.arguments:
        return f"{len(errors)} errors"
    return None


def main() -> int:
    """Exit status: whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", nargs="?", type=Path, help="default: of a model that is compiled")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faults: collections.Counter[str] = collections.Counter()
    codes: collections.Counter[tuple[str, int | None]] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ |= {"HOME": name, "XDG_CACHE_HOME": f"{name}/cache", "COVAN_CACHE": f"{name}/programs"}
        artifact = options.artifact or home / "whole.covan"
        if options.artifact is None:
            (home / "model.py").write_text(MODEL)
            command = [sys.executable, "-m", "covan_mlir.tools.cli", "compile", "model.py:make", "-o", str(artifact)]
            subprocess.run(command, cwd=home, check=True)
        for number, line in zip(range(options.count), lines(options.seed), strict=False):
            turn = home / "turn"
            turn.mkdir()
            lay_out(turn / "here", artifact)
            end = ended(line, turn / "here")
            shutil.rmtree(turn)
            codes[line.program, end.status] += 1
            if fault := wrong(line, end):
                faults[fault] += 1
                print(f"{number}: {fault}: {line}\n    {end.err.strip()[-400:]!r}", flush=True)
    counts = ", ".join(f"{program} {code}: {count}" for (program, code), count in sorted(codes.items(), key=str))
    print(f"{options.count} command lines ({counts}), {faults.total()} wrong")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
