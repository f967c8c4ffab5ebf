"""What crosses between the caller's process and the worker arrives as what it was, or not at all."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.fred.certificate import Certificate, Proof
from covan_mlir.lowering import messages
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import CompilerDiagnostic, JobResult, StepFailure
from covan_mlir.provenance.fusion import FusionRecord, Sweep
from covan_mlir.provenance.observed import Observed, SiteCommand
from covan_mlir.provenance.phases import Phase
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Global,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
)
from covan_mlir.support.processes import frames

NUMBERS = st.integers(0, 9)
IDS = st.lists(NUMBERS, max_size=3).map(tuple)
VALUES = st.one_of(
    st.builds(Argument, NUMBERS),
    st.builds(Constant, IDS),
    st.builds(Global, st.text(max_size=3)),
    st.builds(NodeResult, NUMBERS, NUMBERS),
    st.just(Unknown()),
)
DEFINITIONS = st.lists(
    st.builds(Definition, st.sampled_from(["compute", "move", "view", "input"]), IDS), max_size=2
).map(tuple)
NODES = st.builds(
    ProgramNode,
    st.sampled_from(["dispatch", "transfer"]),
    st.sampled_from(["call", "init"]),
    st.lists(VALUES, max_size=3).map(tuple),
    st.lists(DEFINITIONS, max_size=2).map(tuple),
    IDS,
    st.text(max_size=3),
)
GRAPHS = st.builds(
    ProgramGraph,
    st.lists(NODES, max_size=3).map(tuple),
    st.lists(VALUES, max_size=2).map(tuple),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
)

JOB = Job(
    "auto",
    ("--flag",),
    weights=("fc.weight",),
    fuse="always",
    extra=(("iree:hal", "steps.py:look"),),
    functions=(("covan.f", "module {}", "f"),),
)
FAILURE = StepFailure(
    "iree:hal",
    "no such thing",
    (CompilerDiagnostic("error", "here", (3, 4), "model.py", 12), CompilerDiagnostic("note", "there")),
    log="last words",
)


def result(graph: ProgramGraph) -> JobResult:
    observed = Observed(
        graph=graph,
        commands=(
            SiteCommand(None, "transfer", "fill", "init", ()),
            SiteCommand(0, "dispatch", "main", "call", (1, 2)),
        ),
        buffers=((0, None), (1,)),
        history=(("import", {1: {"torch.aten.relu": 2}, 2: {}}), ("cse", {1: None})),
        phases=(Phase("import", graph),),
    )
    proof = Proof("t", "a = b", ("a > 0",), (), ("z3",), "proved", "", 0.25)
    fusion = FusionRecord(
        "a chain", (1, 2), "fred_max", "", ("m = max(x)",), (Sweep(("k",), "", ("m",)),), (Certificate("c", (proof,)),)
    )
    return JobResult("linalg", {"iree:hal": 0.5}, observed, {"cse": 1}, {"cpu": "znver4"}, 2, (fusion,))


def sent(message: Job | messages.Answer, blobs: Sequence[bytes] = ()) -> io.BytesIO:
    stream = io.BytesIO()
    frames.send(stream, message, blobs)
    stream.seek(0)
    return stream


@pytest.mark.parametrize("job", [JOB, Job("linalg", ())])
def test_jobs_arrive_with_their_blobs(job: Job) -> None:
    assert frames.receive(sent(job, [b"", b"\0\n"]), messages.JOBS) == (job, [b"", b"\0\n"])


@pytest.mark.parametrize(
    "answer",
    [
        messages.Ready(),
        messages.Entered("iree:hal"),
        messages.Failed(FAILURE),
        messages.Done(JobResult("torch", {}, why_torch=FAILURE)),
    ],
    ids=["ready", "entered", "failed", "done"],
)
def test_answers_arrive(answer: messages.Answer) -> None:
    assert frames.receive(sent(answer), messages.ANSWERS) == (answer, [])


@given(GRAPHS)
def test_results_arrive_whatever_the_graph(graph: ProgramGraph) -> None:
    answer = messages.Done(result(graph))
    assert frames.receive(sent(answer, [b"vmfb"]), messages.ANSWERS) == (answer, [b"vmfb"])


def test_messages_keep_apart() -> None:
    stream = io.BytesIO(sent(messages.Entered("a"), [b"x"]).getvalue() + sent(messages.Entered("b")).getvalue())
    assert frames.receive(stream, messages.ANSWERS) == (messages.Entered("a"), [b"x"])
    assert frames.receive(stream, messages.ANSWERS) == (messages.Entered("b"), [])
    with pytest.raises(EOFError):
        frames.receive(stream, messages.ANSWERS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"type":"done","result":{"frontend":"onnx","seconds":{}}}', r"Invalid enum value 'onnx' .*result\.frontend"),
        (b'{"type":"step"}', "missing required field `step`"),
        (b'{"type":"gone"}', "Invalid value 'gone'"),
        (b'{"type":"error","failure":{"phase":"a","message":3}}', r"Expected `str`, got `int` .*failure\.message"),
    ],
)
def test_what_is_no_answer_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        messages.ANSWERS.decode(text)


def test_a_cut_message_is_the_end() -> None:
    whole = sent(JOB, [b"bytecode"]).getvalue()
    for end in range(len(whole)):
        with pytest.raises(EOFError):
            frames.receive(io.BytesIO(whole[:end]), messages.JOBS)
