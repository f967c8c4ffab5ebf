"""What a user attaches, and what an executable tells about it. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from covan_mlir.provenance.attached import FOLDER
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.support.typed_json import JsonObject, Natural, Number, Sha256

Mode = Literal["tap", "replace"]
Way = Literal["at hand", "in place", "split", "recompute"]
Outcome = Literal["dispatched", "view", "merged"]
TAG = "attached"
"""The tag of the actions of attached operators."""


@dataclass(frozen=True)
class MlirFunction:
    """A function in MLIR's upstream dialects on tensors, such as ``func.func @clip(%x: tensor<8x4xf32>) -> ...``.

    Attributes:
        text: of a module with one function of one tensor; a size ``?`` of a result is that of the argument's same
            dimension.
        name: of the function, where the text has several; the others may be called by it.
    """

    text: str
    name: str = ""


@dataclass(frozen=True)
class Attachment:
    """A function on a tensor of the model, and what becomes of its result.

    Attributes:
        fn: a torch function or module of one tensor, or an `MlirFunction`.
        mode: ``tap``: what it returns is an extra result; ``replace``: whoever read the tensor reads its result.
        name: of the attachment; by default the key in ``CompileOptions.attach``.
    """

    fn: Callable[..., Any] | MlirFunction
    mode: Mode = "tap"
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.fn) and not isinstance(self.fn, MlirFunction):
            raise TypeError(f"an attachment is a function of a tensor, not a {type(self.fn).__name__}")
        if self.mode not in ("tap", "replace"):
            raise ValueError(f"mode is 'tap' or 'replace', not {self.mode!r}")


Given = Callable[..., Any] | MlirFunction | Attachment
Attach = Mapping[str | int, Given | Sequence[Given]]
"""``CompileOptions.attach``: by action name or id, module path or source line, one attachment or several."""


def attachments(attach: Attach) -> list[tuple[str | int, Attachment]]:
    """Key and attachment, in the order given, all with names.

    Raises:
        TypeError, ValueError: something is no attachment, or two have one name.
    """
    named: list[tuple[str | int, Attachment]] = []
    for key, given in attach.items():
        several = given if isinstance(given, Sequence) else [given]
        for operator in several:
            attachment = operator if isinstance(operator, Attachment) else Attachment(operator)
            if not attachment.name and len(several) > 1:
                raise ValueError(f"{key!r} has several attachments: name them, Attachment(fn, name='encoded')")
            named.append((key, attachment if attachment.name else replace(attachment, name=str(key))))
    names = [plain_name(attachment.name) for _, attachment in named]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"two attachments are called {named[index][1].name!r}: give them other names")
    return named


def plain_name(name: str) -> str:
    """A name as a part of identifiers: ``features.3.conv`` is ``features_3_conv``."""
    return re.sub(r"\W", "_", name)


class Access(JsonObject, frozen=True):
    """A way of having the tensor, and what it is estimated to cost beside the program without attachment.

    Attributes:
        way: ``at hand``: the tensor is in memory anyway, or its kernel ends with it; ``in place``: what replaces it is
            fused into its kernel where the compiler can, and nobody else reads it; ``split``: the site that computes
            it on the way to something else is cut there, and the tensor written to memory; ``recompute``: that site
            stays as it is, and the tensor is computed again for the attached operator from what is in memory.
        bytes: read and written beside those of the program without attachment.
        flops: beside those.
        seconds: from bytes and FLOPs at the rates of ``covan_mlir.attaching.place``.
    """

    way: Way
    bytes: Number
    flops: Number
    seconds: Number


class AttachmentCost(JsonObject, frozen=True):
    """What an attachment costs, by the cost model: an estimate.

    Attributes:
        chosen: how the tensor is had.
        places: all ways that were considered.
        before: the kernels that compute the tensor without attachment.
        after: the kernels that perform the same actions with it.
        bytes, flops, seconds: all sites with attachments against all sites without, by the lineages of the two
            programs; of all attachments of the program together.
    """

    chosen: Way
    places: tuple[Access, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    bytes: Number
    flops: Number
    seconds: Number

    def __str__(self) -> str:
        kernels = f"{', '.join(self.before) or 'no site'} -> {', '.join(self.after) or 'no site'}"
        ways = ", ".join(f"{p.way} {p.seconds * 1e6:.3g} us" for p in self.places)
        return (
            f"{self.chosen} (estimated: {ways}); {kernels}; in all {self.bytes:+,.0f} bytes, {self.flops:+,.0f} FLOPs, "
            f"{self.seconds * 1e6:+.3g} us"
        )


class Attached(JsonObject, frozen=True):
    """An attached operator of a compiled program.

    Attributes:
        name: key of its result in ``call_with_attachments``.
        target: name of the action whose tensor it reads.
        mode: see `Attachment`.
        actions: names of its own actions in the lineage, in source order.
        again: names of the actions of the model that are computed once more for it, if that is its cost's way.
        types: of what it returns, such as ``i8[1, 64]``.
        sites: that perform its actions.
        fate: ``dispatched``; ``view``: it only changes how the tensor is indexed; ``merged``: it computes what the
            model computes as well, and the two share a kernel.
        source: text of the function, where it can be read; of an `MlirFunction` always.
        constants: SHA-256 of each tensor that the function holds, by name.
        sha256: of the operator: its name, mode and target, its calls and their arguments, its source and constants.
        cost: what it costs.
    """

    name: str
    target: str
    mode: Mode
    actions: tuple[str, ...]
    again: tuple[str, ...]
    types: tuple[str, ...]
    sites: tuple[Natural, ...]
    fate: Outcome
    source: str
    constants: Mapping[str, Sha256]
    sha256: Sha256
    cost: AttachmentCost

    @property
    def module(self) -> str:
        """Module path of its actions in the lineage."""
        return f"{FOLDER}.{plain_name(self.name)}"


def digest(attached: Attached, lineage: LineageData) -> str:
    """SHA-256 of an attached operator as the lineage has it.

    Raises:
        KeyError: the lineage does not have its actions.
    """
    by_name = {action.name: action for action in lineage.actions}
    calls = [_call(by_name[name]) for name in attached.actions]
    whole = [
        attached.name,
        attached.mode,
        attached.target,
        list(attached.types),
        attached.source,
        dict(attached.constants),
        calls,
    ]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _call(action: Action) -> list[Any]:
    parts = [[part.name, part.op, part.args, list(part.types)] for part in action.parts]
    return [action.name, action.op, action.module, list(action.types), list(action.inputs), parts]


def text(them: Iterable[Attached]) -> str:
    """What `covan explain` says of attachments."""
    lines = []
    for attached in them:
        sites = ", ".join(map(str, attached.sites)) or "none"
        lines += [
            f"attached {attached.name!r} to {attached.target}: {attached.mode}, {attached.fate}, "
            f"sites {sites}, gives {', '.join(attached.types)}",
            f"  actions  {', '.join(attached.actions)}",
            f"  cost     {attached.cost}",
            f"  sha256   {attached.sha256}",
        ]
    return "".join(f"{line}\n" for line in lines)
