"""Profiles: what ran is joined to its source exactly, times add up, other tools read the exports."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from artifacts import contents
from command_line import fails
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions, Executable, InputError, Profile, ProfileError
from covan_mlir.artifacts import artifact
from covan_mlir.artifacts.variant import Variant
from covan_mlir.lineage import Lineage
from covan_mlir.machine import host, measured
from covan_mlir.machine.description import PRESETS, Ceilings
from covan_mlir.profiling.costs import Costs
from covan_mlir.profiling.join import Event, join
from covan_mlir.profiling.profile import By
from covan_mlir.profiling.run import divided, profile_of
from covan_mlir.profiling.views import OUTSIDE
from covan_mlir.provenance.model import Action, Frame, Part, Site
from covan_mlir.runtime import devices, profile_events
from covan_mlir.runtime.profile_events import Call, Command, Submission, TimedDispatch
from covan_mlir.tools import cli

BY: tuple[By, ...] = ("line", "module", "stage", "site")


class Heavy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.fc(self.fc(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.heavy = nn.Linear(64, 512), Heavy()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = torch.relu(self.first(x))
        y = torch.softmax(self.heavy(y), -1)
        return y * self.calls


HEAVY = Heavy.forward.__code__.co_firstlineno + 1
NET = Net()
X = torch.randn(256, 64)
MACHINE = replace(PRESETS["avx2"], cores=2, flops=5e11, bandwidth=5e10)
CEILINGS = Ceilings(1e12, 1e11, 2)


@pytest.fixture(scope="module")
def exe() -> Executable:
    """A weight beside the program, a state, and one line that takes most of the time."""
    return covan_mlir.compile_module(NET.eval(), (X,), options=CompileOptions(external_weight_bytes=64))


@pytest.fixture(scope="module", autouse=True)
def _quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ceilings that need not be measured."""
    path = tmp_path_factory.mktemp("machine") / "machine.json"
    path.write_text(json.dumps(asdict(MACHINE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(host.VARIABLE, str(path))
        yield


@pytest.fixture(scope="module")
def profile(exe: Executable) -> Profile:
    return exe.profile(X, repeat=20)


@pytest.fixture(scope="module")
def known(exe: Executable, profile: Profile) -> Profile:
    """The profile as if each site with a part of the heavy line took 100 us, each other 1 us, and the host 7 us."""
    heavy = {site.id for site in exe.lineage.where(f"test_profile.py:{HEAVY}")}
    times = {site: (1e5 if site in heavy else 1e3,) for site in profile.times}
    return replace(profile, times=times, totals=(sum(time for (time,) in times.values()) + 7e3,))


def test_the_line_that_takes_longest_comes_first(exe: Executable, known: Profile) -> None:
    first, *others = known.rows("line")
    assert first.name.endswith(f"test_profile.py:{HEAVY}")
    assert first.time - first.estimated == pytest.approx(3e5)  # its products; a bias is fused with the softmax
    assert 0 < first.estimated < 1e5
    assert [row.time for row in others[:-1]] == sorted((row.time for row in others[:-1]), reverse=True)
    assert others[-1].name == OUTSIDE
    assert known.outside == pytest.approx(7e3)
    modules = {row.name: row for row in known.rows("module")}
    assert modules["heavy"].time >= modules["heavy.fc"].time > modules["first"].time
    assert modules["(model)"].depth == 0
    assert modules["heavy.fc"].depth == 2
    assert known.rows("module")[0].name == "(model)"
    table = known.table().splitlines()
    assert f"test_profile.py:{HEAVY}" in table[table.index("") + 2]


def test_each_dispatch_has_a_row(exe: Executable, profile: Profile) -> None:
    kernels = {row.kernel for row in profile.rows("site")} - {""}
    assert kernels == {site.kernel for site in exe.lineage.sites if site.phase == "call" and site.kind == "dispatch"}


@pytest.mark.parametrize("by", BY)
def test_parts_add_up_to_the_total(profile: Profile, by: By) -> None:
    rows = profile.rows(by)
    assert sum(row.own for row in rows) == pytest.approx(profile.total)
    assert rows[-1].name == OUTSIDE
    assert all(0 <= row.estimated <= row.time * (1 + 1e-9) for row in rows)
    if by == "module":
        assert rows[0].time + rows[-1].time == pytest.approx(profile.total)


def test_calls_fit_into_the_time_that_profiling_took(exe: Executable) -> None:
    """Units and clocks: true however fast the machine is."""
    start = time.perf_counter()
    profile = exe.profile(X, repeat=20)
    passed = time.perf_counter() - start
    assert len(profile.totals) == 20
    assert 0 < sum(profile.totals) * 1e-9 < passed
    assert profile.unprofiled is not None
    assert 0 < 20 / 2 * profile.unprofiled * 1e-9 < passed  # the median of as many calls
    assert profile.overhead == pytest.approx(np.median(profile.totals) / profile.unprofiled - 1)


def test_profiling_leaves_the_model_alone(exe: Executable, profile: Profile) -> None:
    before = NET.calls.clone()
    exe.profile(X, repeat=1)
    assert torch.equal(NET.calls, before)
    with pytest.raises(InputError, match="size 65 on axis 1"):
        exe.profile(torch.randn(256, 65))
    with pytest.raises(InputError, match="at least 1"):
        exe.profile(X, repeat=0)
    with pytest.raises(ValueError, match="by line, module, stage, site"):
        profile.rows("file")  # type: ignore[arg-type]


def test_rooflines(profile: Profile) -> None:
    sites = [row for row in profile.rows("site") if row.roofline]
    heavy = [row.roofline for row in sites if row.roofline and row.roofline.flops > 1e8]
    assert len(heavy) == 3
    for it in heavy:  # one 256x512x512 product each, with its bias; whole operands and results
        assert it.flops == pytest.approx(2 * 256 * 512 * 512, rel=0.02)
        assert it.bytes >= 4 * (512 * 512 + 256 * 512)
        assert it.intensity == pytest.approx(it.flops / it.bytes)
    row = sites[0]
    assert row.roofline is not None
    assert row.roofline.peak == pytest.approx(row.roofline.flops / (row.time * 1e-9) / CEILINGS.flops)
    assert row.roofline.bandwidth == pytest.approx(row.roofline.bytes / (row.time * 1e-9) / CEILINGS.bandwidth)


def test_trace_events(profile: Profile) -> None:
    trace = json.loads(json.dumps(profile.to_chrome_trace()))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "M"}
    assert all(isinstance(event[key], int | float) for event in events for key in ("ts", "dur", "pid", "tid"))
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert len(kernels) == sum(profile.runs.values())
    assert any(f"test_profile.py:{HEAVY}" in " ".join(event["args"]["lines"]) for event in kernels)
    for track in {event["tid"] for event in kernels}:  # complete events of one track nest or follow each other
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in kernels if event["tid"] == track)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(spans))


def test_flame_graphs(profile: Profile) -> None:
    """https://www.speedscope.app/file-format-schema.json: what it requires of a sampled profile."""
    flame = json.loads(json.dumps(profile.to_speedscope()))
    (sampled,) = flame["profiles"]
    assert sampled.keys() >= {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert (sampled["type"], sampled["unit"]) == ("sampled", "nanoseconds")
    assert len(sampled["samples"]) == len(sampled["weights"])
    assert all(0 <= i < len(flame["shared"]["frames"]) for stack in sampled["samples"] for i in stack)
    assert sum(sampled["weights"]) == pytest.approx(profile.total)
    lines = profile.to_collapsed().splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in lines)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == pytest.approx(profile.total, abs=len(lines))
    assert any(line.startswith("(model);heavy;fc;linear_1;") for line in lines)


@pytest.mark.parametrize("by", BY)
def test_csv(profile: Profile, by: By) -> None:
    rows = list(csv.DictReader(io.StringIO(profile.to_csv(by))))
    assert [row[by] for row in rows] == [row.name for row in profile.rows(by)]
    assert sum(float(row["own_ns"]) for row in rows) == pytest.approx(profile.total)


def test_saved_profiles(profile: Profile, exe: Executable, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile.save(path)
    assert Profile.load(path, exe).to_json() == profile.to_json()
    row = json.loads(path.read_text())
    for text, match in (
        (json.dumps({**row, "program": "0" * 64}), "another program"),
        (json.dumps({**row, "format": 99}), "this version of covan reads"),
        (json.dumps({**row, "totals": []}), "damaged"),
        (json.dumps({**row, "sites": [[10**6, 1, []]]}), "damaged"),
        ("{}", "is no profile"),
        ("...", "not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ProfileError, match=match):
            Profile.load(path, exe)
    with pytest.raises(ProfileError, match="cannot be read"):
        Profile.load(tmp_path / "absent.json", exe)


def test_arguments_of_all_kinds() -> None:
    """bool, int64, bfloat16, a number, no axes, an open dimension, weights as arguments."""
    weight = nn.Linear(8, 8).eval()

    def model(x: torch.Tensor, keep: torch.Tensor, at: torch.Tensor, half: torch.Tensor, one: torch.Tensor) -> Any:
        return torch.where(keep, weight(x), x)[at] + half.float() * one

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, *args: torch.Tensor) -> Any:
            return model(*args)

    args = (
        torch.randn(6, 8), torch.rand(6, 8) > 0.5, torch.tensor([0, 3, 5]), torch.randn(8).bfloat16(), torch.tensor(2.0)
    )  # fmt: skip
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = (({0: rows}, {0: rows}, None, None, None),)
    options = CompileOptions(frontend="torch", device="local-task")
    exe = covan_mlir.compile_module(Whole(), args, dynamic_shapes=shapes, options=options)
    profile = exe.profile(*args, repeat=3)
    assert set(profile.symbols.values()) == {6}
    assert sum(profile.runs.values()) == len(profile.timeline) > 0


# ---- without a compiler ----------------------------------------------------------------------------------------------


def part(i: int, op: str, types: Sequence[str], args: str, **more: Any) -> Part:
    return Part(i, i, f"p{i}", op, (), tuple(types), args=args, **more)


def lineage(sites: Sequence[tuple[str, tuple[int, ...]]], commands: Any = None) -> Lineage:
    """A product, a bias over a view of it, a softmax's sum, on three lines of two modules."""
    parts = [
        part(0, "aten.mm.default", ["f32[8, s0]"], '[[{"a":0,"of":"f32[8, 32]"},{"w":"w","of":"f32[32, s0]"}],[]]'),
        part(1, "aten.add.Tensor", ["f32[8, s0]"], '[[{"p":0},{"w":"b","of":"f32[s0]"}],[]]'),
        part(2, "aten.sum.dim_IntList", ["f32[8]"], '[[{"p":1},[-1]],[]]'),
    ]
    actions = [
        Action(i, f"a{i}", it.op, f"m{i // 2}", (Frame("/src/net.py", 10 + i, "forward"),), it.types, (it,))
        for i, it in enumerate(parts)
    ]
    lineage_sites = [Site(i, kernel, "call", trace, trace) for i, (kernel, trace) in enumerate(sites)]
    rows = commands if commands is not None else [[site.id for site in lineage_sites]]
    return Lineage(actions, lineage_sites, rows, results=[("p", 2)])


def call(*kernels: str, start: int = 0, length: int = 100) -> Call:
    """One command buffer whose kernels follow each other, 10 ns each."""
    commands = tuple(Command("dispatch", kernel) for kernel in kernels)
    dispatches = tuple(TimedDispatch(i, kernel, start + 10 * i, 10) for i, kernel in enumerate(kernels))
    return Call(start, length, (Submission(commands, dispatches),))


def made(it: Lineage, calls: Sequence[Call], **more: Any) -> Profile:
    variant = Variant("cpu", b"program", it, {})
    given: dict[str, Any] = {"symbols": {"s0": 16}, "unprofiled": 90.0, "ceilings": None, **more}
    return profile_of(variant, "local-task", calls, join(it, calls), **given)


def test_kernels_that_run_at_once_share_their_time() -> None:
    # 0..10 alone, 10..20 two, 20..30 alone: each has 10 + 5 of the 30 in which any ran
    assert divided([Event(0, 0, 20), Event(1, 10, 20)]) == {0: 15.0, 1: 15.0}
    assert divided([Event(0, 0, 10), Event(0, 50, 10), Event(1, 0, 0)]) == {0: 20.0, 1: 0.0}
    assert divided([]) == {}


def test_shared_sites_are_divided_by_estimate() -> None:
    it = lineage([("k", (0, 1)), ("s", (2,))])
    profile = made(it, [call("k", "s", start=1000)], ceilings=Ceilings(1e9, 1e9, 1))
    # at 1 G each: FLOPs of the product 2·8·32·16, for 4·(8·32 + 32·16) bytes; of the bias 8·16, for 4·(16 + 8·16)
    product, bias = 8192, 576
    assert profile.shares(0) == pytest.approx({0: product / (product + bias), 1: bias / (product + bias)})
    lines = {row.name: row for row in profile.rows("line")}
    assert lines["net.py:10"].time == pytest.approx(10 * product / (product + bias))
    assert lines["net.py:10"].estimated == lines["net.py:10"].time
    assert lines["net.py:12"].estimated == 0
    modules = {row.name: row for row in profile.rows("module")}
    assert (modules["m0"].time, modules["m0"].estimated) == (pytest.approx(10), 0)  # both its actions are in m0
    assert (modules["(model)"].time, profile.outside) == (pytest.approx(20), pytest.approx(80))
    assert "≈100.0 %" in profile.table("line")
    assert "≈" not in profile.table("module")


def test_costs_from_types() -> None:
    it = lineage([("k", (0, 1)), ("s", (2,))])
    costs = Costs(it, {"s0": 16})
    assert [costs.flops(it.parts[i]) for i in range(3)] == [2 * 8 * 32 * 16, 8 * 16, 8 * 16]
    # x, weight and bias in, the sum out; and back in, with one result each row
    assert costs.traffic(it.sites[0]) == {0: 4 * (8 * 32 + 32 * 16), 1: 4 * (16 + 8 * 16)}
    assert costs.traffic(it.sites[1]) == {2: 4 * (8 * 16 + 8)}
    one = lineage([])
    for op, args, types, flops in (
        ("aten.convolution.default", ["f32[2, 3, 8, 8]", "f32[4, 3, 3, 3]", "f32[4]"], "f32[2, 4, 6, 6]", 288 * 55),
        ("aten.addmm.default", ["f32[5]", "f32[2, 3]", "f32[3, 5]"], "f32[2, 5]", 10 * 7),
        ("aten.bmm.default", ["f16[4, 2, 3]", "f16[4, 3, 5]"], "f16[4, 2, 5]", 4 * 2 * 5 * 6),
        ("aten.clone.default", ["f32[8]"], "f32[8]", 0),
        ("aten.exp.default", ["f32[8]"], "f32[8]", 8),
    ):
        text = json.dumps([[{"a": i, "of": of} for i, of in enumerate(args)], []])
        assert Costs(one, {}).flops(part(0, op, [types], text)) == flops, op


def test_what_ran_must_be_what_the_lineage_lists() -> None:
    it = lineage([("k", (0, 1)), ("s", (2,))])
    for wrong, match in (
        (call("k", "other"), "command 1 is s .site 1. in the lineage; other ran"),
        (call("k"), "lists 2 commands; 1 were recorded"),
        (replace(call("k", "s"), submissions=(Submission(call("k", "s").submissions[0].commands, ()),)), "have a time"),
    ):
        with pytest.raises(ProfileError, match=match):
            join(it, [wrong])
    swapped = replace(call("k", "s").submissions[0], dispatches=call("s", "k").submissions[0].dispatches)
    with pytest.raises(ProfileError, match="site 0 runs k; s ran in its place"):
        join(it, [Call(0, 100, (swapped,))])
    with pytest.raises(ProfileError, match="ran different sites"):
        made(lineage([("k", (0,)), ("s", (2,))], [[0], [1]]), [call("k"), call("s")])
    with pytest.raises(ProfileError, match="clock is wrong"):
        made(it, [call("k", "s", length=5)])


def test_devices_that_record_no_commands() -> None:
    """local-sync tells dispatches only, in the order in which they ran: that of the commands."""
    records = [row for row in rows(3) if row["record_type"] != "command_operation"]
    for row in records:
        row["command_index"] = 0xFFFFFFFF
    (one, _) = profile_events.calls(map(json.dumps, records), 3)
    assert one.submissions == (Submission((Command("dispatch", "k"),), (TimedDispatch(0, "k", 5, 20),), whole=False),)
    it = lineage([("k", (0, 1))], [[None, 0, None]])
    assert join(it, [one]) == [[Event(0, 5, 20)]]
    with pytest.raises(ProfileError, match="k ran"):
        join(lineage([("other", (0,))]), [one])
    exe = covan_mlir.compile_module(lambda x: torch.softmax(x @ x, -1), (torch.randn(8, 8),))
    profile = exe.profile(torch.randn(8, 8), repeat=5)
    assert profile.driver == "local-sync"
    assert set(profile.times) == {site.id for site in exe.lineage.sites}


def test_like_command_buffers() -> None:
    it = lineage([("k", (0,)), ("k", (1,))], [[0], [1]])
    once, twice = call("k").submissions[0], call("k", start=50).submissions[0]
    (events,) = join(it, [Call(0, 100, (once, twice))])
    assert [(event.site, event.start) for event in events] == [(0, 0), (1, 50)]
    with pytest.raises(ProfileError, match="cannot be told"):
        join(it, [Call(0, 100, (once, twice, once))])
    loop = lineage([("k", (0,))])  # one buffer may run often: all of that is its site's
    assert made(loop, [Call(0, 100, (once, twice, once))]).runs == {0: 3}


def rows(count: int) -> list[dict[str, Any]]:
    """A recording of calls of one kernel."""
    records: list[dict[str, Any]] = []
    for i in range(count):
        ids = {"submission_id": i, "command_buffer_id": i + 7, "command_index": 0}
        records += [
            {"record_type": "command_operation", "op": "dispatch", "key": "k", **ids},
            {"record_type": "queue_event", "op": "execute", "host_time_ns": 100 * i, **ids},
            {"record_type": "host_execution_event", "op": "dispatch", "key": "k", "valid": True,
             "start_host_time_ns": 100 * i + 5, "duration_ns": 20, **ids},
        ]  # fmt: skip
    return records


def test_events_of_a_recording() -> None:
    calls = profile_events.calls(map(json.dumps, rows(4)), 4)
    one = Submission((Command("dispatch", "k"),), (TimedDispatch(0, "k", 105, 20),))
    assert calls[1] == Call(100, 100, (one,))
    assert len(calls) == 3

    def without_time(it: list[dict[str, Any]]) -> None:
        it[2]["valid"] = False

    def twice(it: list[dict[str, Any]]) -> None:
        it.append(dict(it[2]))

    def in_part(it: list[dict[str, Any]]) -> None:
        it[0]["command_index"] = 1

    def elsewhere(it: list[dict[str, Any]]) -> None:
        it[2]["command_buffer_id"] = 99

    def more(it: list[dict[str, Any]]) -> None:
        it.append(dict(it[1]))

    wrong: tuple[tuple[Callable[[list[dict[str, Any]]], None], str], ...] = (
        (without_time, "gave no time"),
        (twice, "more than once"),
        (in_part, "in part only"),
        (elsewhere, "not submitted"),
        (more, "cannot be told apart"),
        (list.clear, "nothing to profile"),
    )
    for damage, match in wrong:
        it = rows(4)
        damage(it)
        with pytest.raises(ProfileError, match=match):
            profile_events.calls(map(json.dumps, it), 4)


def test_sites_beyond_the_peak(exe: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on a busy machine is measured again; what somebody says is believed, and a note tells."""
    slow = measured.Speeds(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(asdict(MACHINE) | asdict(slow)))
    monkeypatch.setenv(host.VARIABLE, str(path))
    given = exe.profile(X, repeat=1)
    assert given.machine == Ceilings(2.0, 2.0, 2)
    assert given.notes[-1] == "a site computes faster than the peak that is assumed of the machine"

    monkeypatch.delenv(host.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "_known", {})
    monkeypatch.setattr(host, "read", lambda workers: replace(PRESETS["avx2"], cores=2))
    answers = [slow, replace(slow, flops=1e15), slow]
    monkeypatch.setattr(measured, "measure", lambda machine: answers.pop(0))
    again = exe.profile(X, repeat=1)
    assert again.machine == Ceilings(2e15, 2.0, 2)
    assert not any("faster" in note for note in again.notes)
    assert len(answers) == 1


def test_a_machine_that_cannot_be_measured(exe: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(host.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host, "_known", {})
    monkeypatch.setattr(host, "read", lambda workers: replace(MACHINE, speeds="read"))
    monkeypatch.setattr(measured, "measure", lambda machine: None)
    profile = exe.profile(X, repeat=1)
    assert profile.machine == CEILINGS
    assert any("cannot be measured" in note for note in profile.notes)


# ---- other devices, and the command line -----------------------------------------------------------------------------


@pytest.mark.skipif(not devices.discover("vulkan"), reason="no Vulkan device here")
def test_vulkan() -> None:
    exe = covan_mlir.compile_module(lambda x: torch.softmax(x, -1) @ x, (torch.randn(32, 32),), target="vulkan")
    profile = exe.profile(torch.randn(32, 32), repeat=3)
    assert profile.driver == "vulkan"
    assert {row.kernel for row in profile.rows("site")} - {""} == {site.kernel for site in exe.lineage.sites}
    assert sum(row.own for row in profile.rows()) == pytest.approx(profile.total)
    assert profile.machine is None
    assert all(row.roofline.peak is None for row in profile.rows("site") if row.roofline)


def test_command_line(exe: Executable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, given = str(tmp_path / "net.covan"), str(tmp_path / "x.npy")
    exe.save(path)
    np.save(given, X.numpy())
    files = {name: str(tmp_path / name) for name in ("perfetto", "speedscope", "collapsed", "save")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    assert cli.main(["profile", path, "-i", given, "--repeat", "3", "--by", "module", *options]) == 0
    assert "heavy" in capsys.readouterr().out
    assert json.loads(Path(files["perfetto"]).read_text())["traceEvents"]
    assert json.loads(Path(files["speedscope"]).read_text())["profiles"]
    assert Path(files["collapsed"]).read_text().startswith("(model);")
    assert cli.main(["profile", path, "--from", files["save"], "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert sum(row["own"] for row in value["by_line"]) == pytest.approx(value["total_ns"])
    assert cli.main(["profile", path, "--from", files["save"], "--csv", "--by", "site"]) == 0
    assert capsys.readouterr().out.startswith("site,ns,")
    other = str(tmp_path / "other.covan")
    artifact.write(other, contents())
    assert "another program" in fails(capsys, "profile", other, "--from", files["save"])[0]
    assert "one answer" in fails(capsys, "profile", path, "--json", "--csv", code=2)[0]
    assert "runs nothing" in fails(capsys, "profile", path, "--from", files["save"], "-i", given, code=2)[0]
    assert "no folder" in fails(capsys, "profile", path, "--perfetto", str(tmp_path / "absent" / "t.json"))[0]
