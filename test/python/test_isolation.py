"""Programs in processes of their own: the same results, and whatever happens there the caller lives on."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from artifacts import forge
from ending import gone, soon
from limits import HANG
from oracle import assert_same
from torch import nn

import covan_mlir
from covan_mlir import Executable, InputError, Isolation, IsolationError
from covan_mlir.artifacts import machine_code, pytree
from covan_mlir.errors import CovanError
from covan_mlir.runtime.isolation import messages, program
from covan_mlir.runtime.isolation.arena import Arena
from covan_mlir.support.processes import frames

X = np.ones((32, 32), np.float32)


class Model(nn.Module):
    """Has a state, an open size, numbers, tensors of three dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return {"y": self.linear(x), "more": (x > 0, x.sum().to(torch.int64), x.numel()), "calls": self.calls * 1}


def in_place(x: torch.Tensor, y: torch.Tensor, n: int, s: float) -> Any:
    x.add_(y)
    return [x * s, (y.sum() * n, n + 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation")


def saved(folder: Path, name: str, model: Any, args: tuple[Any, ...], **how: Any) -> Path:
    path = folder / f"{name}.covan"
    if not path.exists():
        covan_mlir.compile_module(model, args, **how).save(path)
    return path


@pytest.fixture(scope="module")
def softmax(folder: Path) -> Path:
    return saved(folder, "softmax", lambda x: torch.softmax(x @ x, -1), (torch.ones(32, 32),))


@pytest.fixture(scope="module")
def outer(folder: Path) -> Path:
    """Whose result is as large as one likes."""
    size = torch.export.Dim("size", min=2, max=1 << 20)
    return saved(folder, "outer", lambda x: x[:, None] * x, (torch.ones(32),), dynamic_shapes={"x": {0: size}})


@contextlib.contextmanager
def isolated(path: Path, **limits: Any) -> Iterator[Executable]:
    exe = covan_mlir.load(path, isolated=Isolation(**limits) if limits else True)
    yield exe
    exe.close()


def same(actual: Any, expected: Any) -> None:
    """Of numpy's arrays, or torch's tensors."""
    ours, theirs = pytree.flatten(actual), pytree.flatten(expected)
    assert ours[1] == theirs[1]
    for one, other in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_array_equal(one, other)


def process(exe: Executable) -> int:
    assert isinstance(exe.program, program.IsolatedProgram)
    return exe.program._held[0][0].process.pid


# --- results ----------------------------------------------------------------------------------------------------------


def test_open_sizes_states_and_numbers(folder: Path) -> None:
    torch.manual_seed(3)
    size = torch.export.Dim("size", min=2, max=64)
    path = saved(folder, "model", Model(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: size}})
    here = covan_mlir.load(path)
    with isolated(path) as there:
        assert there.driver == here.driver
        for rows in (2, 64, 7):
            x = torch.randn(rows, 4)
            assert_same(there(x), here(x))
            same(there(x.numpy()), here(x.numpy()))
        with pytest.raises(InputError, match="dimension"):
            there(torch.randn(65, 4))
        there.save(folder / "again.covan")
    assert_same(covan_mlir.load(folder / "again.covan")(x), here(x))


def test_arguments_that_change(folder: Path) -> None:
    path = saved(folder, "in_place", in_place, (torch.ones(3), torch.ones(3), 2, 0.5))
    with isolated(path) as exe:
        for x, y in ((torch.ones(3), torch.full((3,), 3.0)), (np.ones(3, np.float32), np.full(3, 3, np.float32))):
            results = exe(x, y, 2, 0.5)
            same(results, [x * 0 + 2, (y.sum() * 2, 3)])
            assert type(results[0]) is type(x)
            same(x, y + 1)
        with pytest.raises(InputError, match="share memory"):
            exe(x, x, 2, 0.5)


def test_results_that_are_arguments(folder: Path) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x, y.view(-1), x + y, x

    path = saved(folder, "aliases", program, (torch.ones(4, 8), torch.ones(4, 8)))
    here = covan_mlir.load(path)
    x, y = torch.rand(4, 8), torch.rand(4, 8)
    with isolated(path) as there:
        ours, theirs = there(x, y), here(x, y)
        assert_same(ours, program(x, y))
        assert [tensor.data_ptr() in (x.data_ptr(), y.data_ptr()) for tensor in ours] == [
            tensor.data_ptr() in (x.data_ptr(), y.data_ptr()) for tensor in theirs
        ]
        kept = there(x, y)[2]
        expected = kept.clone()
        there(y * 2, y)
        assert_same(kept, expected)  # results are no part of what the next call writes


def test_numbers_that_json_has_not(folder: Path) -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        return x * 2, n.item() * 2

    path = saved(folder, "numbers", program, (torch.ones(3), torch.tensor(0.5)))
    with isolated(path) as exe:
        for value in (0.25, float("inf")):
            assert exe(torch.ones(3), torch.tensor(value))[1] == value * 2


def test_weights_dtypes_and_empty_tensors(folder: Path) -> None:
    def program(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, e: torch.Tensor) -> Any:
        return x * 2, ~b, c * 2, e + 1

    args = (torch.rand(3).to(torch.bfloat16), torch.tensor([True, False]), torch.randn(4, dtype=torch.complex64))
    args = (*args, torch.zeros(0, 3))
    path = saved(folder, "dtypes", program, args)
    with isolated(path) as exe:
        assert_same(exe(*args), program(*args))
    model = nn.Linear(64, 8).eval()
    options = covan_mlir.CompileOptions(external_weight_bytes=1)
    path = saved(folder, "weights", model, (torch.randn(2, 64),), options=options)
    with isolated(path) as exe:
        x = torch.randn(2, 64)
        torch.testing.assert_close(exe(x), model(x))


def test_threads_take_turns(softmax: Path) -> None:
    here = covan_mlir.load(softmax)
    failures: list[object] = []

    def work(number: int, exe: Executable) -> None:
        x = np.full((32, 32), number / 10, np.float32)
        x[:, 0] = number
        expected = here(x).copy()
        for _ in range(30):
            if not np.array_equal(exe(x), expected):
                failures.append(number)

    with isolated(softmax) as there:
        threads = [threading.Thread(target=work, args=(number, there)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_the_file_that_was_opened_is_what_runs(softmax: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.covan"
    path.write_bytes(softmax.read_bytes())
    with isolated(path) as exe:
        expected = exe(X)
        path.unlink()
        path.write_bytes(b"something else")
        exe.close()
        np.testing.assert_array_equal(exe(X), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks_start_a_process_of_their_own(softmax: Path) -> None:
    with isolated(softmax) as exe:
        expected, before = exe(X), process(exe)
        child = os.fork()
        if child == 0:
            os._exit(not (np.array_equal(exe(X), expected) and process(exe) != before))
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(exe(X), expected)
        assert process(exe) == before


# --- death ------------------------------------------------------------------------------------------------------------

_CODE = {"SIGILL": b"\x0f\x0b", "SIGSEGV": b"\x48\x31\xc0\x48\x8b\x00", "hang": b"\xeb\xfe"}
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the planted code is x86's")


@pytest.fixture
def planted(softmax: Path, tmp_path: Path) -> Callable[[str], Path]:
    """The program with other code in its kernels."""

    def plant(what: str) -> Path:
        path = tmp_path / f"{what}.covan"
        path.write_bytes(softmax.read_bytes())

        def edit(members: dict[str, bytes]) -> None:
            code = machine_code.kernels(members["program.vmfb"])
            assert code
            for piece in code.values():
                other = (_CODE[what] * (len(piece) // len(_CODE[what]) + 1))[: len(piece)]
                members["program.vmfb"] = members["program.vmfb"].replace(piece, other)

        forge(path, edit)
        return path

    return plant


@x86
@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV"])
def test_a_crash_is_an_error_that_names_the_signal(planted: Callable[[str], Path], name: str) -> None:
    with isolated(planted(name)) as exe:
        for _ in range(2):  # the second in another process
            with pytest.raises(IsolationError, match=f"{name}.covan: the program's process crashed with {name}"):
                exe(X)


@x86
def test_a_call_that_takes_too_long_is_stopped(planted: Callable[[str], Path]) -> None:
    with isolated(planted("hang")) as exe:
        assert isinstance(exe.program, program.IsolatedProgram)
        pid, place = process(exe), exe.program._place
        exe.program._place = replace(place, limits=Isolation(timeout=1.0))  # of the call alone: to load takes a while
        with pytest.raises(IsolationError, match="longer than the 1 s allowed for the call"):
            exe(X)
        assert gone(pid)


def test_too_much_memory(outer: Path) -> None:
    with isolated(outer, memory=64 << 20) as exe:
        pid = process(exe)
        with pytest.raises(IsolationError, match="67,108,864 bytes allowed"):
            exe(np.ones(1 << 14, np.float32))
        np.testing.assert_array_equal(exe(np.full(100, 2, np.float32)), np.full((100, 100), 4, np.float32))
        assert process(exe) == pid
    with pytest.raises(IsolationError, match="1,024 bytes allowed"):
        covan_mlir.load(outer, isolated=Isolation(memory=1024))


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"memory": -1}, {"timeout": "long"}, {"memory": True}])
def test_limits_that_are_none(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give a number above 0"):
        Isolation(**limits)


def test_a_killed_process_is_followed_by_another(softmax: Path) -> None:
    with isolated(softmax) as exe:
        expected, pid = exe(X), process(exe)
        os.kill(pid, signal.SIGKILL)
        assert soon(lambda: gone(pid))
        np.testing.assert_array_equal(exe(X), expected)


def test_it_ends_when_it_is_closed_or_collected(softmax: Path) -> None:
    exe = covan_mlir.load(softmax, isolated=True)
    expected, pid = exe(X), process(exe)
    exe.close()
    exe.close()
    assert gone(pid)
    np.testing.assert_array_equal(exe(X), expected)
    pid = process(exe)
    del exe
    gc.collect()
    assert gone(pid)
    covan_mlir.load(softmax).close()


CALLER = """
import os, signal, sys, threading
import numpy as np
import covan_mlir
exe = covan_mlir.load(sys.argv[1], isolated=True)
def call():
    exe(np.ones((32, 32), np.float32))
if sys.argv[2] == "thread":  # that started the process, and ends
    starter = threading.Thread(target=lambda: (exe.close(), call()))
    starter.start()
    starter.join()
pid = exe.program._held[0][0].process.pid
if sys.argv[2] == "stopped":
    os.kill(pid, signal.SIGSTOP)
print(pid, flush=True)
if sys.argv[2] == "end":
    sys.exit()
call()
print("called", flush=True)
input()
"""


def _caller(path: Path, what: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", textwrap.dedent(CALLER), str(path), what]
    caller = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    return caller, int(caller.stdout.readline())


@x86
@pytest.mark.parametrize("what", ["end", "running", "stopped", "thread"])
def test_it_ends_with_its_caller(planted: Callable[[str], Path], softmax: Path, what: str) -> None:
    caller, pid = _caller(planted("hang") if what == "running" else softmax, what)
    if what == "thread":
        assert caller.stdout is not None
        assert caller.stdout.readline() == "called\n"
    if what != "end":
        caller.kill()
    caller.communicate()
    assert soon(lambda: gone(pid))


# --- a process that lies ----------------------------------------------------------------------------------------------

_LIES: dict[str, messages.Returned | messages.Loaded] = {
    "nothing": messages.Returned(()),
    "another answer": messages.Loaded("local-sync"),
    "too large": messages.Returned((messages.Tensor(0, 1 << 40, (1 << 38,), 553648160),)),
    "elsewhere": messages.Returned((messages.Tensor(1 << 62, 4096, (32, 32), 553648160),)),
    "another shape": messages.Returned((messages.Tensor(0, 4096, (1 << 20, 1 << 20), 553648160),)),
    "another type": messages.Returned((messages.Tensor(0, 4096, (32, 32), 553648192),)),
    "no type": messages.Returned((messages.Tensor(0, 4096, (32, 32), -1),)),
    "a number": messages.Returned((messages.Number(3),)),
    "a text": messages.Returned((messages.Number("x"),)),
    "no argument": messages.Returned((messages.Same(7),)),
}

LIAR = """
import sys
from covan_mlir.support.processes import frames, parent
from covan_mlir.runtime.isolation import messages
parent.watch(int(sys.argv[1]))
pipe = frames.Pipe(0, 1)
frames.receive(pipe, messages.REQUESTS)
frames.send(pipe, messages.Loaded("local-sync"))
frames.receive(pipe, messages.REQUESTS)
sys.stdout.buffer.write(bytes.fromhex({answer!r}))
sys.stdout.buffer.flush()
frames.receive(pipe, messages.REQUESTS)
"""


@pytest.mark.parametrize("lie", [*_LIES, "a long message", "no message", "half a message"])
def test_what_it_says_is_checked(softmax: Path, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    class Written:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes | memoryview) -> None:
            self.data += data

        def flush(self) -> None: ...

    written = Written()
    if lie in _LIES:
        frames.send(written, _LIES[lie])
    else:
        long = b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{}", b"\x30\0\0\0\0\0\0\0{"
        written.data = long[("a long message", "no message", "half a message").index(lie)]
    start = subprocess.Popen

    def liar(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        code = LIAR.format(answer=written.data.hex())
        return start([sys.executable, "-c", code, *command[3:]], **how)

    monkeypatch.setattr(subprocess, "Popen", liar)
    exe = covan_mlir.load(softmax, isolated=Isolation(timeout=10.0))
    with pytest.raises(CovanError) as caught:
        exe(X)
    assert len(str(caught.value)) <= 2000
    exe.close()


def test_the_arena_cannot_be_cut_short() -> None:
    arena = Arena.new()
    whole = arena.bytes(100_000)
    whole[:] = 1
    for cut in (lambda: os.ftruncate(arena.descriptor, 0), lambda: os.truncate(f"/dev/fd/{arena.descriptor}", 1)):
        with pytest.raises(PermissionError):
            cut()
    assert arena.held(len(whole) - 1, 2) is None
    arena.close()
    assert whole.sum() == len(whole)


def test_parent_is_watched_by_processes_only() -> None:
    """Of another process nobody is a child: it would end at once."""
    code = "import time\nfrom covan_mlir.support.processes import parent\nparent.watch(1)\ntime.sleep(600)"
    assert subprocess.run([sys.executable, "-c", code], timeout=HANG, check=False).returncode == 1
