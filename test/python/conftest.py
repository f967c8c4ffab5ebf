"""Fixtures of several test modules, and what all of them run under."""

from __future__ import annotations

import functools
import gc
import logging
import os

# Before torch is imported: teams of two on any machine, and threads that wait leave the cores to the tests beside.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifacts import contents
from command_line import MODELS, covan
from hypothesis import HealthCheck, settings

from covan_mlir.artifacts import artifact
from covan_mlir.lowering.cache import answers
from covan_mlir.lowering.kernels import database
from covan_mlir.machine import host, reading

# What is chosen by speed must not depend on how busy the machine was when it was measured.
os.environ[host.VARIABLE] = reading.nearest().name
# Tests test the compiler as it is now, and leave the user's own programs alone.
os.environ[answers.VARIABLE] = answers.OFF
# Kernels' machine code is a matter of their text and IREE's compiler alone: tests beside each other share it, and
# nobody after them. Processes of this one inherit the folder, and only this one removes it.
if answers.KERNELS_VARIABLE not in os.environ:
    _kernels = tempfile.TemporaryDirectory(prefix="covan-tests-")
    os.environ[answers.KERNELS_VARIABLE] = _kernels.name
# Nor do they take schedules that the user has measured.
os.environ[database.VARIABLE] = database.OFF

# The same examples in every run, however long they take; `--hypothesis-profile=search` draws others.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Vulkan come last: a driver in software keeps a core busy from its first use to its process's end."""
    items.sort(key=lambda item: "vulkan" in item.nodeid.lower())


def pytest_collection_finish() -> None:
    """All modules are imported, millions of objects that stay: no collection of garbage has to look at them."""
    gc.collect()
    gc.freeze()


class _Listener(logging.Handler):
    """Writes down what is told from warnings on."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.told = told

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@pytest.fixture(autouse=True)
def kernels_of_our_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """A program that lost its kernels, for a pass of ours failed, is right: only a warning tells."""
    told: list[str] = []
    handler = _Listener(told)
    log = logging.getLogger("covan_mlir.compilation.messages")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)
    lost = [text for text in told if "no kernels of covan's own" in text]
    assert not lost or request.node.get_closest_marker("loses_kernels"), lost[0]


@pytest.fixture(autouse=True, scope="module")
def nothing_is_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """What functions of a module remember goes when its last test is done: programs, with their models and lineages."""
    yield
    for value in vars(request.module).values():
        if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == request.module.__name__:
            value.cache_clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with models.py, as the current one."""
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in {"models", "models_model", "syntax", "fails"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of ``make``, written by the command line in a process of its own."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "models.py").write_text(MODELS)
    result = covan("compile", "models.py:make", "-o", "m.covan", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("hello from the factory\nm.covan: ")
    return folder / "m.covan"


@pytest.fixture
def stub(tmp_path: Path) -> str:
    """A small artifact that was never a program."""
    artifact.write(tmp_path / "stub.covan", contents())
    return str(tmp_path / "stub.covan")
