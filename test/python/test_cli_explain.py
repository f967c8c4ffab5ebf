"""covan explain: which kernels perform what, as text, JSON and graphs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from artifacts import contents, fusion, variant
from command_line import fails

from covan_mlir.artifacts import artifact
from covan_mlir.lineage import Lineage
from covan_mlir.profiling.profile import Profile
from covan_mlir.profiling.store import checksum
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.tools import cli


def test_explain(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", stub]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 actions, 1 site, 1 kernel\n\nsite 0  call  main_dispatch_0\n")
    assert "\n  tags: audit:pii, hot\n" in out
    assert out.endswith("1 action is performed by no site:\n  view  iree:import  view\n")
    for what in ("linear", "mlp", "mlp.0"):
        assert cli.main(["explain", stub, what]) == 0
        assert "aten.linear" in capsys.readouterr().out
    assert cli.main(["explain", stub, "view"]) == 0
    became = "view (aten.view)\n  a view: site 0 indexes by it; decided by iree:import\n  tags: hot\n"
    out = capsys.readouterr().out
    assert out.startswith(became + "  groups: attention@0\n")
    assert "\nview: aten.view" in out  # its chain
    assert cli.main(["explain", stub, "model.py:12"]) == 0
    assert f"\n\n{became}" in capsys.readouterr().out
    assert cli.main(["explain", stub, "linear"]) == 0
    assert "linear (aten.linear)\n  performed by site 0\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "actions"),
    [("tag:hot", ["linear", "view"]), ("tag:audit:pii", ["linear"]), ("group:mlp", ["linear"]),
     ("attention@0", ["linear", "view"])],
)  # fmt: skip
def test_explain_tags_and_groups(stub: str, capsys: pytest.CaptureFixture[str], what: str, actions: list[str]) -> None:
    assert cli.main(["explain", stub, what, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["found"] == actions
    assert [row["action"] for row in value["fates"]] == actions
    assert value["sites"][0]["tags"] == ["audit:pii", "hot"]
    assert [edge["source"] for edge in value["graph"]["edges"]] == [f"action:{i}" for i in range(len(actions))]


def test_compile_with_tags(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tags = ("--tag", "softmax=audit:pii", "--tag", "softmax=hot", "--tag", "models.py:11=line")
    assert cli.main(["compile", "models.py:make", "-o", "m.covan", *tags]) == 0
    lineage = artifact.read("m.covan").variant().lineage
    assert lineage.tags("softmax") == {"audit:pii", "hot", "line"}
    assert lineage.tags("linear") == {"line"}
    assert fails(capsys, "compile", "models.py:make", "-o", "m.covan", "--tag", "softmex=hot") == (
        "tag('softmex', 'hot'): nothing in the model is called 'softmex'",
        "did you mean softmax?",
    )
    assert "tags nothing" in fails(capsys, "compile", "models.py:make", "--tag", "softmax", code=2)[0]


def test_explain_as_a_graph(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", stub, "--dot"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("digraph ")
    assert out.count(" -> site0 ") == 2
    assert "one answer" in fails(capsys, "explain", stub, "--dot", "--json", code=2)[0]


def test_explain_as_json(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", stub, "model.py:12", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["found"] == ["linear", "view"]
    assert value["unperformed"] == ["view"]
    assert value["sites"][0]["actions"][0]["module"] == "mlp.0"
    assert cli.main(["explain", stub, "linear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unperformed"] == []


def test_explain_fusion(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", stub, "--fusion"]) == 0
    out = capsys.readouterr().out
    fused, refused = out.split("\n\n")[1:]
    assert out.startswith("2 chains of reductions found; 1 in a kernel of its own\n")
    assert fused.splitlines() == [
        "a chain of 1 reduction",
        "  action linear (aten.linear)  model.py:12",
        "  kernel main_dispatch_0, site 0",
        "  chain",
        "    l[i] = add[j] (x)",
        "  sweep 0 over j",
        "    l.new = l.old + l.local",
        "  1 repair found",
        "  no repair: q cannot follow l: no law",
        "  guard on m where m.new == -inf: x = [-inf]",
        "  certificate: repair of l: proved in 1 ms",
        "    one element",
        "      a = b",
        "      axiom exp(0) = 1",
        "      proved by z3",
        "  template rows, measured to be the best (1.2 us)",
        "  schedule shape=rows parallel=i,4",
        "  predicted 1.5 us; not measured",
    ]
    assert "  no kernel: its tiles do not fit\n" in refused
    assert cli.main(["explain", stub, "linear", "--fusion", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["actions"] == [{"name": "linear", "op": "aten.linear.default", "file": "/home/me/model.py", "line": 12}]
    assert (row["sites"], row["measured_seconds"]) == ([0], None)
    assert FusionRecord.from_json({k: v for k, v in row.items() if k in fusion().to_json()}) == fusion()
    assert "has no graph" in fails(capsys, "explain", stub, "--fusion", "--dot", code=2)[0]


def test_explain_fusion_with_measured_times(stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = artifact.read(stub).variant(None)
    profile = Profile(of.lineage, checksum(of.program), of.target, "local-sync", (9e3, 9e3), {0: (4e3, 4e3)}, {0: 2})
    file = str(tmp_path / "times.json")
    profile.save(file)
    assert cli.main(["explain", stub, "--fusion", "--profile", file]) == 0
    assert "  predicted 1.5 us; measured 2 us\n" in capsys.readouterr().out
    assert cli.main(["explain", stub, "--fusion", "--profile", file, "--json"]) == 0
    assert [row["measured_seconds"] for row in json.loads(capsys.readouterr().out)] == [pytest.approx(2e-6), None]
    assert "--fusion" in fails(capsys, "explain", stub, "--profile", file, code=2)[1]
    Path(file).write_text(json.dumps({**profile.to_json(), "program": "0"}))
    assert "another program" in fails(capsys, "explain", stub, "--fusion", "--profile", file)[0]


def test_explain_errors(stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, "explain", stub, "lineer") == (
        "nothing in the model is called 'lineer'",
        "did you mean linear?",
    )
    assert "lists all" in fails(capsys, "explain", stub, "zzz")[1]
    assert fails(capsys, "explain", stub, "tag:audit:pi")[1] == "did you mean tag:audit:pii?"
    assert "no such file" in fails(capsys, "explain", str(tmp_path / "absent.covan"))[0]
    (tmp_path / "foreign.covan").write_bytes(b"hello")
    assert "no covan artifact" in fails(capsys, "explain", str(tmp_path / "foreign.covan"))[0]
    artifact.write(stub, contents(variants=(variant(lineage=Lineage()),)))
    assert "--no-provenance" in fails(capsys, "explain", stub)[1]


def test_a_reader_that_goes_away(stub: str, tmp_path: Path) -> None:
    code = "import sys; from covan_mlir.tools.cli import main; sys.exit(main())"
    command = f"{sys.executable} -c '{code}' explain {stub} | true"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert result.stderr == ""
