"""The compiler's process: whatever happens in it, the caller lives on and learns what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ending import gone, soon
from limits import HANG, part
from torch import nn

import covan_mlir
from covan_mlir import CompileError, CompileOptions
from covan_mlir.lowering import pool

X = torch.randn(4, 8)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)).eval()


def idle() -> list[int]:
    return [worker.process.pid for worker in pool._idle_for("phases")]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def compiles() -> None:
    model = net()
    torch.testing.assert_close(covan_mlir.compile_module(model, (X,))(X), model(X))


@pytest.fixture
def no_worker() -> None:
    """The one that other tests have left may be at its last job."""
    pool.shutdown()


@pytest.mark.usefixtures("no_worker")
def test_worker_is_reused() -> None:
    compiles()
    before = idle()
    compiles()
    assert idle() == before
    assert len(before) == 1


@pytest.mark.usefixtures("no_worker")
def test_worker_retires(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles()
    (before,) = idle()
    monkeypatch.setattr(pool, "JOBS_PER_WORKER", 1)
    compiles()
    assert idle() == []
    assert not alive(before)
    monkeypatch.undo()
    compiles()


def test_crash_names_the_phase_and_keeps_the_reproducer(tmp_path: Path) -> None:
    # LLVM ends the process on a processor that it does not know.
    kept = tmp_path / "crash.mlir"
    options = CompileOptions(iree_flags=("--iree-llvmcpu-target-cpu=nonsense",), reproducer=str(kept))
    with pytest.raises(CompileError, match="ended with exit code 1") as caught:
        covan_mlir.compile_module(net(), (X,), options=options)
    error = caught.value
    assert error.phase.startswith("iree:")
    assert "64-bit code requested" in error.log
    assert error.reproducer == str(kept)
    text = kept.read_text()
    assert text.startswith(f"// input of step {error.phase}")
    assert "func" in text
    compiles()


def test_reproducer_has_the_code_of_kernels_while_it_is_aside(tmp_path: Path) -> None:
    kept, steps = tmp_path / "failed.mlir", tmp_path / "steps.py"
    steps.write_text("def fail(state):\n    raise ValueError('no')\n")
    options = CompileOptions(
        fuse_reductions="always", extra_steps=(("iree:flow", f"{steps}:fail"),), reproducer=str(kept)
    )
    with pytest.raises(CompileError):
        covan_mlir.compile_module(lambda x: torch.softmax(x, -1), (torch.ones(4, 64),), options=options)
    text = kept.read_text()
    assert "covan.kernel_body" not in text
    assert "vector." in text


def test_crash_without_reproducer_says_how_to_get_one() -> None:
    options = CompileOptions(iree_flags=("--iree-llvmcpu-target-cpu=nonsense",))
    with pytest.raises(CompileError, match=r"CompileOptions\(reproducer="):
        covan_mlir.compile_module(net(), (X,), options=options)


def test_reproducer_is_gone_after_success(tmp_path: Path) -> None:
    kept = tmp_path / "none.mlir"
    covan_mlir.compile_module(net(), (X,), options=CompileOptions(reproducer=str(kept)))
    assert list(tmp_path.iterdir()) == []


def test_time_out() -> None:
    compiles()  # a warm worker: the time goes to the compilation
    with pytest.raises(CompileError, match="longer than the time allowed"):
        covan_mlir.compile_module(net(), (X,), options=CompileOptions(timeout=1e-9))
    compiles()


DYING = """
import os, sys
from covan_mlir.lowering import job, worker

def dying(bytecode, asked, told, prints):
    def tell(name):
        told(name)
        if name == sys.argv[2]:
            os.kill(os.getpid(), int(sys.argv[3]))
    return compile_job(bytecode, asked, tell, prints)

compile_job, job.compile_job = job.compile_job, dying
worker.main(int(sys.argv[1]), *sys.argv[4:])
"""


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, signal.Signals], None]:
    """Makes the next worker die in a step by a signal: one sent from here could come after the step."""
    start = subprocess.Popen

    def plant(step: str, number: signal.Signals) -> None:
        pool.shutdown()
        with monkeypatch.context() as patch:
            code = [sys.executable, "-c", DYING, str(os.getpid()), step, str(int(number))]
            patch.setattr(subprocess, "Popen", lambda command, **options: start([*code, *command[4:]], **options))
            pool.prepare()

    return plant


@pytest.mark.parametrize(
    ("number", "message"), [(signal.SIGKILL, "memory ran out"), (signal.SIGSEGV, "crashed with SIGSEGV")]
)
def test_death_by_signal(number: signal.Signals, message: str, dies: Callable[[str, signal.Signals], None]) -> None:
    dies("iree:flow", number)
    with pytest.raises(CompileError, match=message) as caught:
        covan_mlir.compile_module(net(), (X,))
    assert caught.value.phase == "iree:flow"
    compiles()


def test_crash_of_torch_mlir_takes_the_other_frontend(
    caplog: pytest.LogCaptureFixture, dies: Callable[[str, signal.Signals], None]
) -> None:
    dies("torch-to-linalg", signal.SIGSEGV)
    model = net()
    exe = covan_mlir.compile_module(model, (X,))
    torch.testing.assert_close(exe(X), model(X))
    assert exe.info["frontend"] == "torch"
    assert "takes IREE's torch input instead" in caplog.text
    assert exe.lineage.where("softmax")


def test_failure_names_operation_and_line() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.hash_tensor(y)  # no lowering has it

    with pytest.raises(CompileError) as caught:
        covan_mlir.compile_module(forward, (X,))
    error = caught.value
    line = forward.__code__.co_firstlineno + 2
    assert (error.action, error.file, error.line) == ("hash_tensor", __file__, line)
    assert str(error).startswith(
        f"{__file__}:{line}: hash_tensor (aten.hash_tensor.default): there is no lowering for it; use other "
    )
    assert error.diagnostics


def test_refused_flag() -> None:
    with pytest.raises(CompileError, match=r"refuses a flag: .*no-such-flag"):
        covan_mlir.compile_module(net(), (X,), options=CompileOptions(iree_flags=("--no-such-flag",)))


@pytest.mark.usefixtures("no_worker")
def test_interrupt_stops_the_worker() -> None:
    compiles()
    (before,) = idle()

    def interrupt(step: str) -> None:
        if step == "iree:flow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        covan_mlir.compile_module(net(), (X,), progress=interrupt)
    assert not alive(before)
    compiles()


PROGRAM = """
import os, select, signal, sys, torch, covan_mlir
from covan_mlir.lowering import pool

def tell(step):
    print(step, flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
model = torch.nn.Linear(8, 8)
covan_mlir.compile_module(model, (torch.ones(2, 8),))
print("worker", pool._idle[0].process.pid, flush=True)
{then}
"""


def run(then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(then=textwrap.dedent(then))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def worker_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("worker"):
            return int(line.split()[1])
    raise AssertionError("no worker")


@pytest.mark.parametrize("stop", part(("end", "Ctrl-C", "kill"), kept=("kill",)))
def test_worker_and_its_files_are_its_callers_and_go_with_it(stop: str) -> None:
    """A child that was forked has one of its own, and leaves its caller's alone."""
    process = run(
        """
        parent = pool._idle[0].process.pid
        if os.fork() == 0:
            covan_mlir.compile_module(model, (torch.ones(3, 8),))
            sys.exit(pool._idle[0].process.pid == parent)  # what a child inherits is not its own to remove
        _, status = os.wait()
        covan_mlir.compile_module(model, (torch.ones(4, 8),))
        print("same", status == 0 and pool._idle[0].process.pid == parent, flush=True)
        print("folder", pool._idle_for("phases")[0].folder, flush=True)
        # A signal that comes right before a wait does not cut it short: many short ones.
        while not select.select([sys.stdin], [], [], 0.05)[0]: pass
        """
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pid = worker_of(process)
    assert next(line for line in process.stdout if line.startswith("same")) == "same True\n"
    folder = next(Path(line.split()[1]) for line in process.stdout if line.startswith("folder"))
    assert folder.is_dir()
    match stop:
        case "end":
            process.stdin.write("\n")
            process.stdin.flush()
        case "Ctrl-C":
            process.send_signal(signal.SIGINT)
        case _:
            process.kill()
    process.wait(HANG)
    assert soon(lambda: gone(pid))
    assert soon(lambda: not folder.exists())


def test_temporary_files_go_with_a_compiler_that_is_killed() -> None:
    covan_mlir.compile_module(net(), (X,))
    (worker,) = pool._idle_for("phases")
    folder = Path(worker.folder)
    (folder / "left behind").touch()
    worker.process.kill()
    covan_mlir.compile_module(net(), (X,), options=CompileOptions(cache=False))
    assert not folder.exists()


def test_threads_compile_at_the_same_time() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            compiles()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
