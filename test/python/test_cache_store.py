"""The folder of compiled programs: bounded, shared, and closed to others."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from covan_mlir.lowering.cache import store
from covan_mlir.lowering.cache.store import Store

NAME = hashlib.sha256(b"a question").hexdigest()
OTHER = hashlib.sha256(b"another one").hexdigest()


@pytest.fixture(autouse=True)
def _said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged once a process is logged once a test."""
    monkeypatch.setattr(store, "_logged", set())


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """With an answer in it."""
    place = Store(tmp_path / "programs")
    place.write(NAME, b"an ", b"answer")
    assert place.read(NAME) == (b"an ", b"answer")
    return place


def test_only_the_user_can_read_and_write(kept: Store) -> None:
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    (entry,) = kept.folder.iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600


def test_an_entry_under_another_name_is_a_miss(kept: Store, caplog: pytest.LogCaptureFixture) -> None:
    (entry,) = kept.folder.iterdir()
    entry.rename(entry.with_name(f"{OTHER}.answer"))
    assert kept.read(OTHER) is None
    assert "is damaged" in caplog.text
    assert list(kept.folder.iterdir()) == []


def test_removed_by_others_is_a_miss(kept: Store) -> None:
    (entry,) = kept.folder.iterdir()
    entry.unlink()
    assert kept.read(NAME) is None
    shutil.rmtree(kept.folder)
    assert kept.read(NAME) is None
    assert kept.sizes() == []


@pytest.mark.parametrize("which", ["folder", "file"])
def test_of_another_user_is_refused(
    which: str, kept: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = kept.folder.iterdir()
    foreign = (kept.folder if which == "folder" else entry).stat().st_ino
    fstat = os.fstat

    def stranger(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        return os.stat_result([*status[:4], status.st_uid + (status.st_ino == foreign), *status[5:]])

    monkeypatch.setattr(os, "fstat", stranger)
    for _ in range(2):
        assert kept.read(NAME) is None
    assert caplog.text.count("belongs to another user") == 1
    kept.write(OTHER, b"", b"no")
    monkeypatch.undo()
    assert kept.read(OTHER) == (None if which == "folder" else (b"", b"no"))


@pytest.mark.parametrize("which", ["folder", "file"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_that_others_may_write_to_is_refused(
    which: str, mode: int, kept: Store, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = kept.folder.iterdir()
    (kept.folder if which == "folder" else entry).chmod(mode)
    assert kept.read(NAME) is None
    assert "others may write" in caplog.text


def test_links_are_not_followed(kept: Store, tmp_path: Path) -> None:
    (entry,) = kept.folder.iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert kept.read(NAME) is None


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    names = [hashlib.sha256(bytes([i])).hexdigest() for i in range(5)]
    kept = Store(tmp_path / "programs", limit=3 * (40 + 100))
    (tmp_path / "programs").mkdir(mode=0o700)
    (tmp_path / "programs" / "notes.txt").write_text("of the user's own" * 100)
    for index, name in enumerate(names[:3]):
        kept.write(name, b"", bytes(100))
        os.utime(kept.folder / f"{name}.answer", (index, index))
    assert kept.read(names[0]) == (b"", bytes(100))  # from now on the youngest
    kept.write(names[3], b"", bytes(100))
    assert [kept.read(name) is not None for name in names] == [True, False, True, True, False]
    assert sum(kept.sizes()) <= kept.limit
    kept.write(names[4], bytes(100), bytes(100))
    assert sum(kept.sizes()) <= kept.limit
    assert kept.read(names[4]) == (bytes(100), bytes(100))
    kept.write(names[1], b"", bytes(1000))  # more than may be kept at all
    assert kept.read(names[1]) is None
    assert kept.read(names[4]) == (bytes(100), bytes(100))
    kept.clear()
    assert [path.name for path in kept.folder.iterdir()] == ["notes.txt"]


def test_two_that_make_room_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each removes what the other has seen, too."""
    kept = Store(tmp_path / "programs", limit=2 * (40 + 100))
    names = [hashlib.sha256(bytes([i])).hexdigest() for i in range(4)]
    for name in names[:2]:
        kept.write(name, b"", bytes(100))
    files = store._files

    def meanwhile(folder: int) -> list[tuple[int, str, int]]:
        seen = files(folder)
        monkeypatch.setattr(store, "_files", files)
        kept.write(names[3], b"", bytes(100))
        return seen

    monkeypatch.setattr(store, "_files", meanwhile)
    kept.write(names[2], b"", bytes(100))
    assert sum(kept.sizes()) <= kept.limit
    assert kept.read(names[3]) == (b"", bytes(100))


def test_what_was_half_written_is_removed_in_time(kept: Store) -> None:
    """By a process that was killed; it is no answer, and counts as one."""
    half = kept.folder / f"{NAME}.{'0' * 16}.answer"
    half.write_bytes(bytes(1000))
    os.utime(half, (0, 0))
    assert len(kept.sizes()) == 2
    replace(kept, limit=500).write(OTHER, b"", bytes(100))
    assert not half.exists()
    assert kept.read(NAME) is not None


def test_failed_writes_leave_nothing(
    kept: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept.write(OTHER, b"head", b"body")
    assert "No space left on device" in caplog.text
    assert [path.name for path in kept.folder.iterdir()] == [f"{NAME}.answer"]
