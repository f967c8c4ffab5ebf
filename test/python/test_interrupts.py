"""Ctrl-C: it waits for imports, and what comes after it works. The sweep over all moments is bench/interrupts.py."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from limits import HANG, part

from covan_mlir.support.interrupts import orderly

BENCH = Path(__file__).resolve().parents[2] / "bench" / "interrupts.py"


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_an_interrupt_waits_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import signal\nbefore = 1\nsignal.raise_signal(signal.SIGINT)\nsignal.raise_signal(signal.SIGINT)\nafter = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    @orderly()
    def work() -> None:
        importlib.import_module("interrupted")
        time.sleep(HANG)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert sys.modules["interrupted"].after == 1
    time.sleep(0.1)  # there is but one


def test_an_interrupt_takes_effect_at_once_elsewhere() -> None:
    reached = []

    @orderly()
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == []


def test_what_is_whole_ends_first() -> None:
    done = []

    @orderly()
    def work() -> None:
        with orderly(whole=True):
            signal.raise_signal(signal.SIGINT)
            done.append("whole")
        time.sleep(HANG)
        done.append("slept")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


def test_other_threads_and_ignored_signals() -> None:
    def work() -> None:
        with orderly():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with orderly():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("moment", part((0.5, 4.0, 7.0), kept=(4.0,)))
def test_the_next_compilation_works(moment: float) -> None:
    """At one moment in the import, the compilation, the call or the load: which of them depends on the machine."""
    command = [sys.executable, str(BENCH), "--at", str(moment)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
