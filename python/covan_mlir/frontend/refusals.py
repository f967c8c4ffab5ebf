"""What users read when a program cannot be compiled: what it is, and what to do instead; no compiler's own notation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch.fx import Graph, Node

from covan_mlir.errors import ExportError
from covan_mlir.frontend import frames
from covan_mlir.frontend.actions import graphs, op_name
from covan_mlir.frontend.open_sizes import fixed_sizes

_LEAVE = (
    "use other operations, or leave it to PyTorch: put it into a function under @torch.compiler.disable and compile "
    'the model with torch.compile(model, backend="covan")'
)
_BREAKS = (
    'use torch.where, torch.cond or torch.while_loop, or torch.compile(model, backend="covan"), which breaks the graph '
    "there"
)
_ADVICE = (
    (
        r"_unique2|unique_|nonzero|masked_select",
        "the size of its result depends on values: use torch.where with a mask",
    ),
    (
        r"bernoulli|rand|normal|multinomial|dropout",
        "pass them to the model as an argument, or take the program's own with CompileOptions(random_numbers=True)",
    ),
    (r"complex|_fft|stft|view_as_", "compute with real and imaginary parts of their own"),
)
_NO_CODE = re.compile(
    r"failed to legalize|explicitly marked illegal|unsupported by backend contract|[Nn]ot implemented|Unimplemented"
)
_NO_MACHINE_CODE = re.compile(r"LLVM Translation failed|failed to translate the MLIR LLVM dialect")
_NOTATION = re.compile(
    r"\s*[:,]?\s*(?:%\w|\"torch\.|!torch|loc\(|see current operation|\^bb\d|#map|func\.func).*", re.S
)
_TYPES = re.compile(r"\s*\(?'?!?(?:torch\.v?tensor|tensor|vector|memref)<[^>]*>+'?\)?")


def advice(op: str) -> str:
    """What a user can do about an operation that cannot be compiled."""
    special = next((text for pattern, text in _ADVICE if re.search(pattern, op)), "")
    return f"{special}, {_LEAVE.removeprefix('use other operations, ')}" if special else _LEAVE


def plainly(message: str) -> str:
    """A compiler's message in words: its first line without IR."""
    first = next(iter(message.strip().splitlines()), "")
    if _NO_CODE.search(first):
        return "there is no lowering for it"
    if _NO_MACHINE_CODE.search(first):
        return "the compiler has no machine code for it"
    text = _TYPES.sub("", _NOTATION.sub("", first)).partition(". ")[0].strip(" :,")
    return text or "the compiler gives no reason"


def said(log: str) -> Sequence[str]:
    """The lines of a compiler's output that are in words."""
    return [line for line in log.splitlines() if not _NOTATION.search(line)]


def user_line(node: Node) -> str:
    """``file:line: `` of a node in the user's code, or an empty string."""
    user = next((frame for frame in frames.parse(node.meta.get("stack_trace")) if not frame.internal), None)
    return f"{user}: " if user else ""


def refused(node: Node, why: str) -> ExportError:
    """The error for a program that cannot be compiled for one of its operations."""
    op = op_name(node)
    return ExportError(f"{user_line(node)}{node.name} ({op}) cannot be compiled: {why}; {advice(op)}")


def draws(node: Node) -> bool:
    """Whether a call draws random numbers: dropout and the like do so in training alone."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = dict(zip((argument.name for argument in target._schema.arguments), node.args, strict=False)) | node.kwargs
    values = {argument.name: given.get(argument.name, argument.default_value) for argument in target._schema.arguments}
    # native_dropout's None stands for training.
    in_training = values.get("training", values.get("train")) is not False
    return in_training and all(values.get(name) != 0 for name in ("dropout", "dropout_p"))


def refuse_random(graph: Graph) -> None:
    """Raises ExportError for random numbers that results are computed of: compiled ones come from elsewhere."""
    for _, inner in graphs(graph):
        for node in inner.nodes:
            if draws(node) and node.users:
                raise refused(node, "random numbers that a program draws do not follow torch.manual_seed")


def depends_on_data(error: BaseException) -> bool:
    """Whether `torch.export` fails because a model asks for the value of a tensor."""
    return "DataDependent" in type(error).__name__ or "data-dependent" in str(error)


def export_failure(name: str, error: BaseException) -> str:
    """Why `torch.export` does not take a model."""
    kind = type(error).__name__
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if depends_on_data(error):
        reason = f"what it does next depends on the value of a tensor (data-dependent, {kind})"
        return f"{name} does not export: {reason}, which torch.export does not follow: {_BREAKS}"
    if (fixed := fixed_sizes(error)) is not None:
        return f"{name} does not export: sizes are not as open as dynamic_shapes says: {fixed}"
    return (
        f"{name} does not export: torch.export fails with {kind}: {first}. If the model runs in eager mode on these "
        'arguments, torch.compile(model, backend="covan") compiles what can be exported and leaves the rest to PyTorch'
    )
