"""Records of measured schedules: what a file of them holds, who reads it, and that compilations take what fits."""

from __future__ import annotations

import json
import logging
import multiprocessing
import sqlite3
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from dense_chains import product

import covan_mlir
from covan_mlir import CompileOptions, RecordsError
from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels import database, shipped, taken
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Measurement, Setting, Workload
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.recorded import Recorded, compact, dump, load, workload
from covan_mlir.lowering.kernels.select import Choices, Selection, choices, select
from covan_mlir.machine.description import PRESETS
from covan_mlir.machine.host import host

TARGET = CpuTarget(PRESETS["avx512"])
SETTING = Setting("cpu", "this machine", "these versions")


def chain() -> Chain:
    return product("ik", "kj", "ij", "k", i=40, j=48, k=64)


def listed() -> Choices:
    listing = choices(chain(), TARGET)
    assert not isinstance(listing, Refusal)
    return listing


def third() -> Recorded:
    """Not the one that is predicted to be the best."""
    candidate, schedule = list(listed().schedules())[2]
    return Recorded(workload(chain()), candidate.template.name, compact(schedule.to_json()), 1e-5)


def measurement(schedule: str, seconds: float | None, failure: str = "") -> Measurement:
    return Measurement("w", "product", schedule, seconds, "product d", 2e-3, 7, failure)


def test_equal_chains_are_one_workload_whatever_they_come_from() -> None:
    traced = replace(chain(), steps=tuple(replace(step, trace=frozenset({7})) for step in chain().steps))
    assert workload(traced) == workload(chain())
    assert workload(product("ik", "kj", "ij", "k", i=40, j=48, k=65)) != workload(chain())


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    with Database(tmp_path / "folder" / "records.sqlite") as kept:
        kept.add(SETTING, Workload("w", "{}"), [measurement("a", 1e-3), measurement("b", None, "it crashed")])
        kept.add(SETTING, Workload("w", "{}"), [measurement("a", 2e-3)])
        kept.add(SETTING, Workload("v", "{}"), [])
        kept.choose(SETTING, [Recorded("w", "product", "a", 2e-3)])
    with Database(tmp_path / "folder" / "records.sqlite", "read") as kept:
        assert kept.measurements(SETTING, "w") == [measurement("a", 2e-3), measurement("b", None, "it crashed")]
        assert kept.chosen(SETTING) == (Recorded("w", "product", "a", 2e-3),)
        assert kept.workloads() == {"v": "{}", "w": "{}"}


def test_what_holds_elsewhere_is_not_taken(tmp_path: Path) -> None:
    others = (replace(SETTING, machine="another"), replace(SETTING, kind="cuda"))
    with Database(tmp_path / "records.sqlite") as kept:
        kept.choose(replace(SETTING, versions="older"), [Recorded(name, "product", "a", 1.0) for name in "uvw"])
        for other in others:
            kept.choose(other, [Recorded("x", "product", "a", 1.0)])
        kept.choose(SETTING, [Recorded("w", "product", "b", 1.0)])
        assert kept.chosen(SETTING) == (Recorded("w", "product", "b", 1.0),)
        assert kept.stale(SETTING) == 2


def test_a_setting_is_of_the_machine_not_of_its_speeds() -> None:
    machine = PRESETS["avx512"]
    assert Setting.of("cpu", machine) == Setting.of("cpu", replace(machine, flops=1.0, bandwidth=1.0))
    assert Setting.of("cpu", machine) != Setting.of("cpu", replace(machine, cores=machine.cores + 1))
    assert Setting.of("cpu", machine) != Setting.of("cpu", replace(machine, l2=1))


def _write(path: Path, name: str) -> None:
    with Database(path) as kept:
        for number in range(30):
            kept.add(SETTING, Workload(name, "{}"), [replace_workload(measurement(str(number), 1.0), name)])


def replace_workload(row: Measurement, name: str) -> Measurement:
    return msgspec.structs.replace(row, workload=name)


def test_processes_write_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with Database(path, "read") as kept:
        assert len(kept.measurements(SETTING)) == 90


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(RecordsError, match=r"text: file is not a database\nchoose another file, or remove this one"):
        Database(tmp_path / "text")
    connection = sqlite3.connect(tmp_path / "other")
    connection.execute("CREATE TABLE records (name)")
    connection.close()
    with pytest.raises(RecordsError, match="other: no records that this version of covan reads"):
        Database(tmp_path / "other", "read")
    with pytest.raises(RecordsError, match="unable to open database file"):
        Database(tmp_path / "missing", "read")
    assert not (tmp_path / "missing").exists()


def test_lines_carry_all_of_it(tmp_path: Path) -> None:
    with Database(tmp_path / "one") as one, Database(tmp_path / "two") as two:
        one.add(SETTING, Workload("w", "{}"), [measurement("a", 1e-3), measurement("b", None, "wrong")])
        one.choose(SETTING, [Recorded("w", "product", "a", 1e-3)])
        lines = list(one.export())
        assert two.read_lines(lines) == 4
        assert list(two.export()) == lines


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 holds no record: Input data was truncated"),
        (b'{"record": {"type": "choice", "workload": 1}}', "line 2 holds no record"),
        (
            b'{"record": {"type": "choice", "workload": "w", "template": "t", "schedule": "s", "seconds": 1}}',
            "hold for",
        ),
    ],
)
def test_a_line_that_is_none_adds_nothing(tmp_path: Path, line: bytes, said: str) -> None:
    with Database(tmp_path / "records") as kept:
        with pytest.raises(RecordsError, match=said):
            kept.read_lines([b'{"record": {"type": "workload", "name": "w", "chain": "{}"}}', line])
        assert kept.workloads() == {}


def test_records_cross_as_text() -> None:
    assert load(dump([third()])) == {workload(chain()): third()}
    for text in ("no JSON", "{}", '[{"workload": 1}]', dump([replace(third(), seconds=-1.0)])):
        with pytest.raises(ValueError, match=r"malformed|Expected|missing|required"):
            load(text)


def test_the_schedule_that_was_measured_is_taken() -> None:
    plain, measured = (select(chain(), "k", TARGET, always=True, recorded=each) for each in (None, third()))
    assert isinstance(plain, Selection)
    assert isinstance(measured, Selection)
    assert plain.measured is None
    assert compact(measured.schedule) == third().schedule
    assert measured.schedule != plain.schedule
    assert measured.measured == 1e-5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"template": "gone"}, "no template 'gone' takes it on avx512"),
        ({"schedule": '{"rows": 1000}'}, "the target cannot hold the schedule"),
        ({"schedule": "no JSON"}, "Expecting value"),
    ],
)
def test_what_the_target_cannot_hold_is_told_and_not_taken(
    changed: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = select(chain(), "k", TARGET, always=True)
    other = select(chain(), "k", TARGET, always=True, recorded=replace(third(), **changed))
    assert other == plain
    assert f"the schedule that was measured for k is not used: {said}" in caplog.text


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def _choose(path: Path, executable: covan_mlir.Executable) -> tuple[str, str]:
    """Has later compilations take another schedule for the only kernel of a program; -> its template and schedule."""
    (record,) = executable.lineage.fusions
    its = chain_json.load(record.source)
    listing = choices(its, CpuTarget(host()))
    assert not isinstance(listing, Refusal)
    candidate, schedule = next(
        (candidate, schedule)
        for candidate, schedule in listing.schedules()
        if (candidate.template.name, schedule.to_json()) != (record.template, dict(record.schedule))
    )
    with Database(path) as kept:
        text = compact(schedule.to_json())
        kept.choose(Setting.of("cpu", host()), [Recorded(workload(its), candidate.template.name, text, 3e-6)])
    return candidate.template.name, text


def test_compilations_take_it_and_lineages_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Layer(), torch.randn(40, 64)
    plain = covan_mlir.compile_module(model, (x,))
    (record,) = plain.lineage.fusions
    assert record.measured == 0
    template, schedule = _choose(tmp_path / "records.sqlite", plain)
    tuned = covan_mlir.compile_module(model, (x,), options=CompileOptions(records=tmp_path / "records.sqlite"))
    (record,) = tuned.lineage.fusions
    assert (record.template, compact(dict(record.schedule)), record.measured) == (template, schedule, 3e-6)
    torch.testing.assert_close(tuned(x), model(x))
    assert tuned.verify()
    # The user's own file is looked into without being asked, unless it is asked not to be.
    monkeypatch.setenv(database.VARIABLE, str(tmp_path / "records.sqlite"))
    assert covan_mlir.compile_module(model, (x,)).lineage.fusions == tuned.lineage.fusions
    without = covan_mlir.compile_module(model, (x,), options=CompileOptions(records=None))
    assert without.lineage.fusions[0].schedule == plain.lineage.fusions[0].schedule


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="unable to open"):
        covan_mlir.compile_module(Layer(), (torch.randn(4, 64),), options=CompileOptions(records=tmp_path / "missing"))


def test_what_is_wrong_with_the_users_own_file_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged").write_text("no database" * 100)
    monkeypatch.setenv(database.VARIABLE, str(tmp_path / "damaged"))
    monkeypatch.setattr(shipped, "schedules", lambda *kind: (third(),))
    assert taken.schedules_for("", "cpu", host()) == (third(),)
    assert "schedules that were measured are not used: " in caplog.text


def test_stale_records_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Database(tmp_path / "records") as kept:
        older = replace(Setting.of("cpu", host()), versions="older")
        kept.choose(older, [Recorded("w", "product", "{}", 1.0)])
    with caplog.at_level(logging.INFO):
        assert taken.schedules_for(tmp_path / "records", "cpu", host()) == ()
    assert "schedules of 1 workloads" in caplog.text
    assert "other versions, and are not used" in caplog.text


@pytest.fixture
def kind_folder(tmp_path: Path) -> Path:
    """Shipped schedules for machines of the preset's kind: `third`, measured twice as fast as what is predicted."""
    record = third()
    setting = Setting.of("cpu", TARGET.machine)
    candidate, schedule = next(listed().schedules())
    against = f"{candidate.template.name} {compact(schedule.to_json())}"
    row = Measurement(record.workload, record.template, record.schedule, 1e-5, against, 2e-5, 7)
    with Database(tmp_path / "records") as kept:
        kept.add(setting, Workload(record.workload, compact(chain_json.dump(chain()))), [row])
        kept.choose(setting, [record])
        ship = list(shipped.chosen(kept, setting, TARGET))
        slow = msgspec.structs.replace(row, seconds=1.95e-5)
        kept.add(setting, Workload(record.workload, ""), [slow])
        assert not list(shipped.chosen(kept, setting, TARGET)), "it is no margin"
    origin = shipped.Origin("a processor", database.compiler_version(), TARGET.machine)
    path = tmp_path / f"{shipped.machine_kind('cpu', TARGET.machine)}.jsonl"
    path.write_bytes(shipped.written(origin, ship))
    return tmp_path


def test_a_shipped_schedule_is_taken_on_a_machine_of_the_kind(kind_folder: Path) -> None:
    (record,) = shipped.schedules("cpu", replace(TARGET.machine, name="another", flops=1e9), kind_folder)
    selection = select(chain(), "k", TARGET, always=True, recorded=record)
    assert isinstance(selection, Selection)
    assert (compact(selection.schedule), selection.measured) == (third().schedule, 1e-5)
    assert selection.elsewhere
    assert load(dump([record])) == {record.workload: record}
    assert shipped.schedules("cpu", PRESETS["avx2"], kind_folder) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"against": "another"}, "compared with another one than is predicted"),
        ({"against_code": "0" * 64}, "compared with a kernel of another version"),
        ({"code": "0" * 64}, "another version, or for another machine, wrote the kernel"),
    ],
)
def test_a_shipped_schedule_is_not_taken_where_it_may_be_slower(
    kind_folder: Path, changed: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (record,) = shipped.schedules("cpu", TARGET.machine, kind_folder)
    assert record.condition is not None
    other = replace(record, condition=replace(record.condition, **changed))
    with caplog.at_level(logging.INFO):
        selection = select(chain(), "k", TARGET, always=True, recorded=other)
    assert selection == select(chain(), "k", TARGET, always=True)
    assert said in caplog.text


def test_another_compilers_shipped_schedules_are_told(
    kind_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shipped, "compiler_version", lambda: "another")
    with caplog.at_level(logging.INFO):
        assert shipped.schedules("cpu", TARGET.machine, kind_folder) == ()
    assert "of the compiler, and are not used" in caplog.text


def test_the_users_records_come_before_the_shipped_ones(
    kind_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = shipped.schedules("cpu", TARGET.machine, kind_folder)
    monkeypatch.setattr(shipped, "schedules", lambda *kind: (record,))
    monkeypatch.setenv(database.VARIABLE, str(tmp_path / "own"))
    assert taken.schedules_for("", "cpu", TARGET.machine) == (record,)
    with Database(tmp_path / "own") as kept:
        kept.choose(Setting.of("cpu", TARGET.machine), [third()])
    assert taken.schedules_for("", "cpu", TARGET.machine) == (third(),)
    assert taken.schedules_for(tmp_path / "own", "cpu", TARGET.machine) == (third(),)
    monkeypatch.setenv(database.VARIABLE, database.OFF)
    assert taken.schedules_for("", "cpu", TARGET.machine) == taken.schedules_for(None, "cpu", TARGET.machine) == ()


def test_a_schedule_that_nobody_can_take_is_stale(kind_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = kind_folder.glob("*.jsonl")
    origin, (one,) = shipped.read(path)
    assert shipped.written(origin, [one]) == path.read_bytes()
    assert shipped.stale(origin, [one], CpuTarget) == {}
    assert one.record.condition is not None
    other = msgspec.structs.replace(
        one, record=replace(one.record, condition=replace(one.record.condition, code="0" * 64))
    )
    assert "another version" in shipped.stale(origin, [other], CpuTarget)[one.record.workload]
    monkeypatch.setattr(shipped, "compiler_version", lambda: "another")
    assert "of the compiler" in shipped.stale(origin, [one], CpuTarget)[one.record.workload]


@pytest.mark.parametrize("path", sorted(shipped.FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_what_is_shipped_can_be_taken(path: Path) -> None:
    origin, records = shipped.read(path)
    assert path.stem == shipped.machine_kind("cpu", origin.machine)
    stale = shipped.stale(origin, records, CpuTarget)
    assert not stale, (
        f"{len(stale)} of {len(records)} shipped schedules are of kernels that are written in another way now: "
        "python bench/ship_records.py --renew measures them again (on such a machine), --drop-stale leaves them out"
    )


def test_other_machines_programs_take_none(tmp_path: Path) -> None:
    assert taken.schedules_for(tmp_path / "never looked at", "cpu", None) == ()
    assert json.loads(dump([])) == []
