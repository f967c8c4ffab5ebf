"""The page of ONNX operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import onnx
from onnx_cases import Judged

from covan_mlir.frontend.onnx import operators as declared
from covan_mlir.frontend.onnx.registry import MICROSOFT, Operator, operators

assert declared
_HEAD = """# ONNX operators

What covan compiles of ONNX's operators, by all cases that onnx tests backends with. Made by
`python bench/onnx_operators.py --write-docs` with onnx {version}. How ONNX models are compiled is in
[onnx.md](onnx.md).

A case *matches* if its results have the types, shapes and values that it expects, within its own tolerances, or what
rounding allows. It is *refused* if it does not compile, with an error that gives the reason. *Out of scope* are
training, strings, and elements of types that programs lack: 8-bit floating-point numbers, integers of 4 and 2 bits.

Each case is translated, and the translation run by PyTorch; of cases that a sweep compiled, the second row tells.

{summary}

"""


def page(programs: Mapping[str, Judged], translations: Mapping[str, Judged]) -> str:
    """Markdown."""
    parts = [_HEAD.format(version=onnx.__version__, summary=_summary(programs, translations))]
    rows = {**translations, **programs}
    others = sorted((row for row in rows.values() if row.outcome in ("refused", "differs", "fails")), key=_by_why)
    parts.append("## Cases that do not match\n\n| case | what | why |\n|---|---|---|\n")
    parts.append("".join(f"| {row.name} | {row.outcome} | {_cell(row.why)} |\n" for row in others))
    scope = Counter(row.why for row in rows.values() if row.outcome == "out of scope")
    parts.append("\n## Out of scope\n\n| cases | why |\n|---|---|\n")
    parts.append("".join(f"| {count} | {why} |\n" for why, count in scope.most_common()))
    parts.append("\n## Operators with a translation\n\n")
    parts.append(
        "Others that ONNX defines by functions of these are translated, too: such as `Attention`, "
        "`SoftmaxCrossEntropyLoss`, `AffineGrid`. Opsets are those of the operator's domain.\n\n"
    )
    known = list(operators())
    parts.append(_table("ONNX's own", [op for op in known if op.domain == ""]))
    parts.append(
        _table("`com.microsoft`, which ONNX Runtime contributes", [op for op in known if op.domain == MICROSOFT])
    )
    parts.append(_table("`ai.onnx.ml`", [op for op in known if op.domain == "ai.onnx.ml"]))
    return "".join(parts).rstrip() + "\n"


def _summary(programs: Mapping[str, Judged], translations: Mapping[str, Judged]) -> str:
    lines = ["| cases | number | out of scope | in scope | match | refused | differ | fail |", f"|{8 * '---|'}"]
    for title, shipped in (("node cases", False), ("models as files: simple, converted from PyTorch", True)):
        for what, known in (("translation, run by PyTorch", translations), ("compiled", programs)):
            rows = [row for row in known.values() if ("/" in row.name) == shipped]
            if not rows:
                continue
            count = Counter(row.outcome for row in rows)
            scope = len(rows) - count["out of scope"]
            share = f" ({100 * count['matches'] / scope:.1f} %)" if scope else ""
            told = [f"{title}, {what}", len(rows), count["out of scope"], scope, f"{count['matches']}{share}"]
            told += [count[outcome] for outcome in ("refused", "differs", "fails")]
            lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines)


def _by_why(row: Judged) -> tuple[str, str, str]:
    return row.outcome, re.sub(r"'.*?'|\d+", "", row.why), row.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(title: str, known: Sequence[Operator]) -> str:
    named: dict[str, list[str]] = {}
    for op in known:
        named.setdefault(op.name, []).append(op.opsets)
    rows = "".join(f"| {name} | {', '.join(opsets)} |\n" for name, opsets in sorted(named.items()))
    return f"### {title}\n\n| operator | opsets |\n|---|---|\n{rows}\n"
