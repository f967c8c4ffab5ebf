"""Artifacts whose parts contradict each other, hashes and all: nothing foreign is imported, executed or read."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import attacks
import numpy as np
import pytest
import torch
from artifacts import contents, edit_json, forge
from limits import HANG, part, some
from oracle import assert_same
from torch import nn

import covan_mlir
from covan_mlir import ArtifactError
from covan_mlir.artifacts import artifact


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Answer:
    score: Any
    hint: Any = None
    rest: Any = None


class Model(nn.Module):
    """Has a state, an open size, numbers, tensors of three dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return {"y": self.linear(x), "more": (x > 0, x.sum().to(torch.int64), x.numel())}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An artifact of `Model`."""
    size = torch.export.Dim("size", min=2, max=64)
    exe = covan_mlir.compile_module(Model(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: size}})
    path = tmp_path_factory.mktemp("saved") / "model.covan"
    exe.save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, saved: bytes) -> Path:
    file = tmp_path / "model.covan"
    file.write_bytes(saved)
    return file


def set_in(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(tree: Any) -> None:
        for key in keys[:-1]:
            tree = tree[key]
        tree[keys[-1]] = value

    return change


def custom(name: str, context: Any) -> dict[str, Any]:
    return {"kind": "custom", "name": name, "context": json.dumps(context), "children": ["*", "*", "*", "*"]}


CANARY = "covan_test_canary"
TREES = [
    custom("collections.defaultdict", {"default_factory_module": CANARY, "default_factory_name": "x",
                                       "dict_context": ["a", "b", "c", "d"]}),
    custom("collections.namedtuple", f"{CANARY}.Thing"),
    custom("collections.OrderedDict", ["a", "b", "c", "d"]),
    custom(f"{CANARY}.Thing", [["a", "b", "c", "d"], []]),
    custom("torch.Size", None),
    custom("torch.return_types:svd", None),
    {"kind": "namedtuple", "name": f"{CANARY}:Thing", "children": ["*"] * 4, "keys": ["a", "b", "c", "d"]},
    {"kind": "namedtuple", "name": "lazy_module:Thing", "children": ["*"] * 4, "keys": ["a", "b", "c", "d"]},
    {"kind": "namedtuple", "name": "os:system", "children": ["*"] * 4, "keys": ["a", "b", "c", "d"]},
    {"kind": "defaultdict", "name": CANARY, "children": ["*"] * 4, "keys": ["a", "b", "c", "d"]},
]  # fmt: skip

OPTIONS = {
    "extensions": [f"{CANARY}.py"],
    "extra_steps": [["torch-to-linalg", f"{CANARY}.py:step"]],
    "iree_flags": [f"--iree-llvmcpu-embedded-linker-path=./{CANARY}.py"],
    "reproducer": f"{CANARY}.mlir",
    "attach": {"linear": f"{CANARY}.py:step"},
    "frontend": f"{CANARY}.py",
    "winograd": f"__import__('{CANARY}')",
}
FORGERIES = [
    *[edit_json("signature.json", set_in("out_tree", value=tree)) for tree in TREES],
    *[edit_json("signature.json", set_in("in_tree", "children", 0, "children", 0, value=tree | {"children": ["*"]}))
      for tree in TREES],
    edit_json("signature.json", set_in("inputs", 0, value={"kind": "constant", "name": "x", "value": f"{CANARY}.x"})),
    edit_json("signature.json", set_in("inputs", 0, "shape", 0, value=f"__import__('{CANARY}')")),
    *[edit_json("manifest.json", set_in("variants", 0, "info", "options", option, value=value))
      for option, value in OPTIONS.items()],
]  # fmt: skip
EVERYWHERE = f"""
import os, sys
told = os.open("told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
events = {{"open", "import", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen",
          "ctypes.dlopen"}}
def hook(event, arguments):
    if event in events and "{CANARY}" in repr(arguments):
        os.write(told, f"{{event}} {{arguments}}\\n".encode())
sys.addaudithook(hook)
"""


def test_nothing_that_a_file_names_is_imported_or_executed(path: Path) -> None:
    """Files are loaded, called, explained, verified, reported and compared in a process that hears of each import, each
    piece of code that is executed, each process and each library. What comparing does with the model itself, it does
    with an honest file as well. No process that it starts opens what a file names."""
    folder = path.parent
    canary = folder / f"{CANARY}.py"
    canary.write_text("Thing = 1\nprint('CANARY')\nopen('touched', 'w')\n")
    canary.chmod(0o755)
    (folder / "sitecustomize.py").write_text(EVERYWHERE)
    (folder / "honest.py").write_text(
        f"import torch\nfrom torch import nn\nfrom typing import Any\n{inspect.getsource(Model)}"
    )
    torch.manual_seed(0)
    fixed = folder / "fixed.covan"  # a model with open sizes is not exported again as it was
    covan_mlir.compile_module(Model(), (torch.ones(3, 4),)).save(fixed)
    forgeries = [*some(FORGERIES[: -len(OPTIONS)], 3), *FORGERIES[-len(OPTIONS) :]]
    for index, change in enumerate(forgeries):
        for honest, name in ((path, f"hostile{index:02}.covan"), (fixed, f"hostile{index:02}.fixed")):
            shutil.copy(honest, folder / name)
            forge(folder / name, change)
    code = textwrap.dedent(r"""
        import re, sys, types
        from pathlib import Path
        import numpy as np
        import torch
        import covan_mlir
        from honest import Model

        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                if name == "Thing":
                    print("LAZY")
                raise AttributeError(name)

        sys.modules["lazy_module"] = Lazy("lazy_module")
        heard = None

        def hook(event, arguments):
            if heard is None or event not in WATCHED:
                return
            by = sys._getframe(1).f_globals.get("__name__")
            # Classes that namedtuple makes are its own code; their fields are names, which is checked before. ast only
            # parses: of sizes.
            if event in ("exec", "compile") and by in ("collections", "ast"):
                return
            what = {"import": arguments[:1], "subprocess.Popen": arguments[1:2]}.get(event, ())
            heard.append((event, by, re.sub(r"/tmp/\S+?'|'\d+'", "'-'", repr(what))[:200]))

        WATCHED = {"import", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen",
                   "ctypes.dlopen", "pickle.find_class", "marshal.loads", "code.__new__", "function.__new__"}
        sys.addaudithook(hook)

        def use(file):
            try:
                executable = covan_mlir.load(file)
                executable(np.ones((3, 4), np.float32))
                executable(torch.ones(3, 4))
                executable.explain()
                executable.verify()
                executable.report(Path(file).with_suffix(".html"))
                return "used"
            except covan_mlir.CovanError:
                return "refused"

        def compare(file):
            torch.manual_seed(0)
            model = Model()
            try:
                return "agrees" if covan_mlir.load(file).compare(torch.ones(3, 4), model=model) else "differs"
            except covan_mlir.CovanError:
                return "refused"

        def listen(function, file):
            global heard
            heard = []
            result = function(file)
            events, heard = heard, None
            return result, events

        honest = set()
        for _ in range(2):
            use(sys.argv[1])
            result, events = listen(compare, sys.argv[2])
            assert result == "agrees"
            honest |= set(events)
        for file in sys.argv[3:]:
            used, events = listen(use, file)
            compared, more = listen(compare, Path(file).with_suffix(".fixed"))
            print(Path(file).name, used, compared, events + sorted(set(more) - honest))
    """)
    files = sorted(map(str, folder.glob("hostile*.covan")))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(fixed), *files], env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False, cwd=folder, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = done.stdout
    lines = out.splitlines()
    assert len(lines) == len(forgeries), out
    assert all(line.endswith("[]") for line in lines), out
    assert all(" refused [" in line for line in lines[-len(OPTIONS) :]), out
    assert (folder / "told").read_text() == ""
    assert not (folder / "touched").exists()


def test_containers_of_a_files_own_types(tmp_path: Path) -> None:
    """In the process that compiled, registered types rebuild themselves; from a file they are built by their fields,
    and where they are unknown, dicts and lists stand for them."""
    pytree = torch.utils._pytree
    pytree.register_dataclass(Answer, serialized_type_name="test.Answer")

    def forward(x: torch.Tensor) -> Any:
        return Answer(x + 1, rest=Pair(x * 2, torch.max(x, dim=0)))

    x = torch.randn(3, 4)
    exe = covan_mlir.compile_module(forward, (x,))
    exe.save(tmp_path / "model.covan")
    for program in (exe, covan_mlir.load(tmp_path / "model.covan")):
        answer = program(x)
        assert type(answer) is Answer
        assert answer.hint is None
        assert type(answer.rest) is Pair
        assert type(answer.rest.right) is torch.return_types.max
        assert_same(answer.rest.right.values, x.max(0).values)
        assert_same(answer.rest.left, x * 2)


def test_inputs_of_types_that_are_not_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A list or a dict is taken in their place."""
    path = tmp_path / "model.covan"
    covan_mlir.compile_module(lambda pair: pair[0] - pair[1], ([torch.ones(2), torch.ones(2)],)).save(path)
    tree = {"kind": "custom", "name": "nowhere.Pair", "context": '["a", "b"]', "children": ["*", "*"]}
    forge(path, edit_json("signature.json", set_in("in_tree", "children", 0, "children", 0, value=tree)))
    exe = covan_mlir.load(path)
    assert_same(exe({"b": torch.ones(2), "a": torch.full((2,), 5.0)}), torch.full((2,), 4.0))
    with pytest.raises(covan_mlir.InputError):
        exe([torch.ones(2)])


def test_unknown_types_become_dicts(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forge(path, edit_json("signature.json", set_in("out_tree", value=custom("nowhere.Output", ["a", "b", "c", "d"]))))
    with caplog.at_level(logging.WARNING):
        result = covan_mlir.load(path)(np.ones((3, 4), np.float32))
    assert list(result) == ["a", "b", "c", "d"]
    assert "nowhere.Output" in caplog.text


# What the signature says: where, and another value than the program's.
LIES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("an output's dtype, wider", ("outputs", 0, "dtype"), "float64"),
    ("an output's dtype, of the same size", ("outputs", 0, "dtype"), "int32"),
    ("an output's rank", ("outputs", 0, "shape"), [5]),
    ("an output's size", ("outputs", 0, "shape", 1), 5000),
    ("an output's dtype, none that can be passed", ("outputs", 0, "dtype"), "complex64"),
    ("bool as bytes", ("outputs", 1, "dtype"), "uint8"),
    ("an input's dtype", ("inputs", 0, "dtype"), "float64"),
    ("an input's rank", ("inputs", 0, "shape"), [64]),
    ("an input's size", ("inputs", 0, "shape", 1), 1),
    ("a tensor as number", ("outputs", 0), {"kind": "scalar", "name": "y", "dtype": "int", "symbol": ""}),
    ("a number as tensor", ("outputs", 3), {"kind": "tensor", "name": "n", "dtype": "int64", "shape": []}),
    ("an int as float", ("outputs", 3, "dtype"), "float"),
    ("a state's dtype", ("states", 0, "dtype"), "float64"),
    ("a state's size", ("states", 0, "shape"), [300]),
    ("a state's name", ("states", 0, "name"), "others"),
    ("results in another order", ("results", 0), ["output", 1]),
    ("an input as constant", ("inputs", 0), {"kind": "constant", "name": "x", "value": 1}),
    ("another function", ("function",), "__init"),
    ("no function", ("function",), "x" * 5000),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "value"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
def test_signatures_that_lie_are_refused_at_load(path: Path, keys: tuple[Any, ...], value: Any) -> None:
    forge(path, edit_json("signature.json", set_in(*keys, value=value)))
    with pytest.raises(covan_mlir.CovanError) as info:
        covan_mlir.load(path)
    assert len(str(info.value)) <= 2000


def test_states_that_lie_are_refused_at_load(path: Path) -> None:
    def wider(manifest: Any) -> None:
        manifest["states"][0] |= {"dtype": "float16", "shape": [6]}

    forge(path, edit_json("manifest.json", wider))
    with pytest.raises(ArtifactError, match=r"state 'calls' is 'float16\[6\]'"):
        covan_mlir.load(path)


def test_results_are_checked_before_they_are_read(path: Path) -> None:
    """A program whose declaration lies: the signature agrees with it, the buffer views do not."""

    def wider(members: dict[str, bytes]) -> None:
        program = members["program.vmfb"]
        assert program.count(b"%output1: tensor<?x5xf32>") == 1
        members["program.vmfb"] = program.replace(b"%output1: tensor<?x5xf32>", b"%output1: tensor<?x5xf64>")

    forge(path, wider)
    forge(path, edit_json("signature.json", set_in("outputs", 0, "dtype", value="float64")))
    exe = covan_mlir.load(path)
    for ones in (np.ones((3, 4), np.float32), torch.ones(3, 4)):
        with pytest.raises(covan_mlir.CovanError, match=r"output 0 is 'float64\[s\d+, 5\]', but the program gave"):
            exe(ones)


def test_programs_of_iree_input_are_checked_by_their_calling_convention(tmp_path: Path) -> None:
    path = tmp_path / "model.covan"
    options = covan_mlir.CompileOptions(frontend="torch")
    covan_mlir.compile_module(lambda x, n: (x * n, n + 1), (torch.ones(2), 2), options=options).save(path)
    assert_same(covan_mlir.load(path)(torch.ones(2), 2)[0], torch.full((2,), 2.0))
    leaf = {"kind": "scalar", "name": "y", "dtype": "int", "symbol": ""}
    forge(path, edit_json("signature.json", set_in("outputs", 0, value=leaf)))
    with pytest.raises(ArtifactError, match="refused: output 0 is 'int', but the program gives 'reference'"):
        covan_mlir.load(path)


def test_deep_structures_are_refused(path: Path) -> None:
    def nest(signature: Any) -> None:
        for _ in range(100):
            signature["out_tree"] = {"kind": "list", "children": [signature["out_tree"]]}

    forge(path, edit_json("signature.json", nest))
    with pytest.raises(ArtifactError, match="more than 64 containers inside of each other"):
        covan_mlir.load(path)


def test_named_tuples_of_unknown_classes(path: Path) -> None:
    tree = {"kind": "namedtuple", "name": "nowhere:Four", "children": ["*"] * 4, "keys": ["a", "b", "c", "d"]}
    forge(path, edit_json("signature.json", set_in("out_tree", value=tree)))
    result = covan_mlir.load(path)(np.ones((3, 4), np.float32))
    assert (type(result).__name__, result._fields) == ("Four", ("a", "b", "c", "d"))
    assert result._replace(d=0).d == 0
    assert isinstance(result, tuple)
    assert list(result._asdict()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "expression",
    ["9**9**9", "1+" * 4000 + "1", "(" * 900 + "1" + ")" * 900, "-" * 1900 + "1", "1+" * 900 + "1", "s0//0", "s0.x",
     "f(1)", "\0", "'a'", "0x", "s0 if s0 else 1", "\ud800"],
)  # fmt: skip
@pytest.mark.parametrize("leaf", [("inputs", 0, "shape", 0), ("outputs", 0, "shape", 0), ("outputs", 3, "symbol")])
def test_sizes_that_are_no_sizes(path: Path, leaf: tuple[Any, ...], expression: str) -> None:
    """Refused, or the size is unknown and everything else right."""
    forge(path, edit_json("signature.json", set_in(*leaf, value=expression)))
    with contextlib.suppress(covan_mlir.CovanError):
        assert covan_mlir.load(path)(np.ones((3, 4), np.float32))["more"][2] == 12


def test_weights_that_cannot_have_their_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.covan"
    artifact.write(path, contents())

    def huge(manifest: Any) -> None:
        manifest["weights"][1]["shape"] = [0, 1 << 62, 1 << 62]

    forge(path, edit_json("manifest.json", huge))
    with pytest.raises(ArtifactError, match="cannot have its shape"):
        covan_mlir.load(path)


@pytest.mark.parametrize("count", part((100, 400), kept=(100,)))
def test_attacks_of_all_kinds_are_refused_or_harmless(path: Path, count: int) -> None:
    """A seeded part of bench/attack.py: no crash, no other exception, no hang; of programs not either, isolated."""
    attack = Path(__file__).resolve().parents[2] / "bench" / "attack.py"
    command = [sys.executable, str(attack), str(path), "--count", str(count), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_are_bounded() -> None:
    message = str(ArtifactError("begin " + "x" * 100_000 + " end"))
    assert len(message) <= 2000
    assert message.startswith("begin")
    assert message.endswith("end")


def test_peak_of_an_attack_is_what_it_took(path: Path) -> None:
    """Whatever this process held earlier: the peak is the fork's own."""
    earlier = b"1" * (256 << 20)
    del earlier
    taken = attacks.attempt(path, use=lambda _: len(b"1" * (64 << 20)))
    assert 60 << 20 < taken.peak < 128 << 20


def test_attacks_that_take_too_much_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(_: Path) -> None:
        while True:
            pass

    assert attacks.attempt(path, use=lambda _: len(b"1" * (300 << 20))).outcome == "memory"
    monkeypatch.setattr(attacks, "SECONDS", 0.2)
    assert attacks.attempt(path, use=spin).outcome == "timeout"
