"""A difference as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from covan_mlir.profiling.differences.difference import Difference, LineTimes, SiteChange

_SHOWN = 40
_WIDTH = 120


def text(difference: Difference) -> str:
    """What changed, a paragraph for each kind of thing; what did not is counted."""
    if difference.same:
        return "the same program\n"
    lines: list[str] = []
    for title, told in (
        (
            "compiled otherwise",
            (f"{s.what}: {s.after or '(none)'}, was {s.before or '(none)'}" for s in difference.settings),
        ),
        (
            "actions",
            (
                f"{_SIGNS[a.change]} {a.name} ({a.op})  {a.line}  {a.module}{': ' if a.what else ''}{'; '.join(a.what)}"
                for a in difference.actions
            ),
        ),
        ("fates", (f"{f.name} ({f.op})  {f.line}: {f.after}, was {f.before}" for f in difference.fates)),
        ("kernels", (line for site in difference.sites for line in _site(site))),
    ):
        lines += _paragraph(title, told)
    if difference.total is not None:
        before, after = difference.total
        unit, scale = ("ms", 1e6) if max(before, after) >= 1e6 else ("us", 1e3)
        lines += ["", f"times ({difference.times}): {after / scale:.3f} {unit} a call, was {before / scale:.3f}"]
        lines += _paragraph("", (_line(row, scale) for row in difference.lines if _changed(row, before)))
    if not lines:
        lines.append("another program of the same kernels")
    kept = "1 site is as it was" if difference.kept == 1 else f"{difference.kept:,} sites are as they were"
    return "\n".join([*lines, "", kept]).lstrip("\n") + "\n"


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def _site(site: SiteChange) -> Iterator[str]:
    number = f"site {site.after}" if site.after is not None else f"site {site.before} of before"
    times = [f"{time / 1e3:.1f} us" if time is not None else "-" for time in (site.time_before, site.time_after)]
    spent = f"  {times[0]} -> {times[1]}" if {*times} != {"-"} else ""
    yield f"{number}  {site.kernel_after or site.kernel_before}{spent}  {', '.join(site.lines)}"
    if site.kernel_before and site.kernel_after and site.kernel_before != site.kernel_after:
        yield f"  was {site.kernel_before}, site {site.before}"
    yield from (f"  {what}" for what in site.what)


def _changed(row: LineTimes, total: float) -> bool:
    """What changed by less than a thousandth of a call is not worth a line."""
    return row.before is None or row.after is None or abs(row.after - row.before) > 1e-3 * total


def _line(row: LineTimes, scale: float) -> str:
    before, after = ("      -" if time is None else f"{time / scale:7.3f}" for time in (row.before, row.after))
    return f"{before} -> {after}  {row.line}{f', was {chr(44).join(row.was)}' if row.was else ''}"


def _paragraph(title: str, told: Iterable[str]) -> list[str]:
    lines = [_fit(line) for line in told]
    if not lines:
        return []
    more = [f"  and {len(lines) - _SHOWN} more (--json has all)"] if len(lines) > _SHOWN else []
    return [*(["", title] if title else []), *(f"  {line}" for line in lines[:_SHOWN]), *more]


def _fit(line: str) -> str:
    """Without control characters, in one line."""
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
