"""Passes by name, their options, and pipelines."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

# Makes the passes known that ask for kernels.
import covan_mlir.lowering.kernels.passes  # noqa: F401
from covan_mlir import dialects
from covan_mlir.passes.framework import registry
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.options import describe, option_name
from covan_mlir.passes.framework.pipeline import UPSTREAM_PASSES, PassError, parse_pipeline
from covan_mlir.passes.framework.pipeline_text import PipelineError

RAN: list[str] = []


@dataclass(frozen=True)
class Probe:
    """Notes what it runs on."""

    name: ClassVar[str] = "test-probe"
    op_name: ClassVar[str | None] = None

    tag: str = ""
    tile_size: int = 64
    fast: bool = False
    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ("a",)

    def run(self, op: ir.Operation) -> None:
        symbol = op.attributes["sym_name"].value if "sym_name" in op.attributes else op.name
        RAN.append(f"{self.tag}{symbol}")
        if self.tag == "raise":
            raise KeyError("bug")
        if self.tag == "refuse":
            raise PassFailure("cannot")


@dataclass(frozen=True)
class Picky:
    """Has an option that must be given."""

    name: ClassVar[str] = "test-picky"

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("count must be positive")

    def run(self, op: ir.Operation) -> None:
        pass


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    registry.register(Probe)
    registry.register(Picky)
    RAN.clear()
    yield
    for name in ("test-probe", "test-picky"):
        registry._registered.pop(name)


@pytest.fixture
def module() -> ir.Module:
    context = ir.Context()
    dialects.load(context)
    text = """
    module @top {
      func.func @f() { return }
      module @inner { func.func @g() { return } }
      func.func @h() { return }
    }"""
    return ir.Module.parse(text, context)


def only_pass(text: str) -> Any:
    (step,) = parse_pipeline(f"builtin.module({text})").steps
    return step.action


def test_options() -> None:
    assert only_pass("test-probe") == Probe()
    assert only_pass("test-probe{}") == Probe()
    assert only_pass("test-probe{ tile-size=-3  fast sizes=1,2 }") == Probe(tile_size=-3, fast=True, sizes=(1, 2))
    assert only_pass("test-probe{tile_size=8 fast=false sizes={4}}") == Probe(tile_size=8, sizes=(4,))
    assert only_pass("test-probe{tag='two words' names= sizes={}}") == Probe(tag="two words", names=())


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("test-probe{tile-size=x}", "option 'tile-size' of pass 'test-probe': 'x' is not an int", "tile-size"),
        ("test-probe{fast=maybe}", "'maybe' is not a bool", "fast"),
        ("test-probe{sizes=1,x}", "'x' is not an int", "sizes"),
        ("test-probe{tile-size}", "needs a value: int", "tile-size"),
        ("test-probe{sizes}", "needs a value: tuple of int", "sizes"),
        ("test-probe{fast tile=3}", "has no option 'tile', did you mean 'tile-size'?", "tile=3"),
        ("test-probe{=3}", "expected an option", "=3"),
        ("test-picky", "missing 1 required positional argument: 'count'", "test-picky"),
        ("test-picky{count=0}", "count must be positive", "test-picky"),
        ("cse,tset-probe", "no pass is called 'tset-probe', did you mean 'test-probe'?", "tset-probe"),
        ("test-probe)", "expected the end of the pipeline", ")"),
        ("test-probe{", "unbalanced '{'", "{"),
        ("cse,,cse", "expected the name of a pass", ",cse"),
        ("cse{nope=1}", "no such option nope", "cse{"),
        ("func.func(test-picky{count=1})", "runs on builtin.module and cannot be nested under func.func", "test-picky"),
    ],
)
def test_errors(text: str, message: str, at: str) -> None:
    whole = f"builtin.module({text})"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(whole)
    assert message in str(caught.value)
    assert whole[caught.value.offset :].startswith(at)


@given(
    st.builds(
        Probe,
        tag=st.text("ab ,{}()=", max_size=4),
        tile_size=st.integers(),
        fast=st.booleans(),
        sizes=st.lists(st.integers(), max_size=3).map(tuple),
        names=st.lists(st.text("abc", min_size=1), max_size=3).map(tuple),
    )
)
def test_description_parses_back(probe: Probe) -> None:
    assert only_pass(describe(probe)) == probe


def test_pipeline_prints_and_parses_back() -> None:
    text = "builtin.module(cse,func.func(canonicalize,cse),test-probe{fast=true},func.func(test-probe),cse)"
    assert str(parse_pipeline(text)) == text
    mixed = parse_pipeline("builtin.module( func.func( cse , test-probe , cse ) )")
    assert str(mixed) == "builtin.module(func.func(cse),func.func(test-probe),func.func(cse))"


def test_nesting(module: ir.Module) -> None:
    def ran(pipeline: str) -> list[str]:
        RAN.clear()
        parse_pipeline(pipeline).run(module)
        return RAN

    assert ran("builtin.module(test-probe)") == ["top"]
    assert ran("any(test-probe)") == ["top"]
    assert ran("builtin.module(func.func(test-probe))") == ["f", "h"]
    assert ran("builtin.module(builtin.module(func.func(test-probe)))") == ["g"]
    assert ran("builtin.module(any(test-probe))") == ["f", "inner", "h"]
    assert ran("builtin.module(func.func(test-probe{tag=1},cse,test-probe{tag=2}))") == ["1f", "1h", "2f", "2h"]


def test_failures_name_the_pass(module: ir.Module) -> None:
    with pytest.raises(PassError, match=r"pass 'test-probe' raised KeyError: 'bug'") as caught:
        parse_pipeline("builtin.module(test-probe{tag=raise},test-probe{tag=later})").run(module)
    assert isinstance(caught.value.__cause__, KeyError)
    assert RAN == ["raisetop"]
    with pytest.raises(PassError, match=r"pass 'test-probe': cannot"):
        parse_pipeline("builtin.module(func.func(test-probe{tag=refuse}))").run(module)


def test_register_refuses_what_is_no_pass() -> None:
    with pytest.raises(TypeError, match="is not a pass"):
        registry.register(int)  # type: ignore[arg-type]


def test_every_pass_is_documented() -> None:
    passes = [p for p in registry.all_passes() if p.__module__.startswith("covan_mlir.")]
    assert {"prov-trace", "prov-strip", "prov-lower-locations", "fred-raise", "fred-kernels"} <= {
        p.name for p in passes
    }
    for pass_class in passes:
        package, _, file = pass_class.__module__.rpartition(".")
        assert package in ("covan_mlir.passes", "covan_mlir.lowering.kernels.passes")
        assert file == pass_class.name.replace("-", "_")
        assert pass_class.__dataclass_params__.frozen  # type: ignore[attr-defined]
        documentation = pass_class.__doc__ or ""
        assert "Before" in documentation, pass_class
        assert "After" in documentation, pass_class
        for field in dataclasses.fields(pass_class):  # type: ignore[arg-type]
            assert f"{option_name(field.name)}:" in documentation, pass_class


@pytest.mark.parametrize("name", UPSTREAM_PASSES)
def test_suggested_upstream_passes_exist(name: str) -> None:
    with ir.Context():
        PassManager("any").add(name)


def test_comments_and_lines() -> None:
    text = "// what it is for\nbuiltin.module(\n  cse, // the first\n  prov-strip\n)\n// the end\n"
    assert str(parse_pipeline(text)) == "builtin.module(cse,prov-strip)"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text.replace("prov-strip", "prov-stripe"))
    assert str(caught.value).splitlines()[1:] == ["    prov-stripe", "    ^"]
