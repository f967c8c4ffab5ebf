"""Models that were trained and ship inside packages, on real inputs, beside ONNX Runtime.

    python bench/trained_models.py
    python bench/trained_models.py --only text

``files``: what magika takes the files of this project for; ``bits``: the same of the model in 8 bits, calibrated with
each fifth of them, beside the model in float; ``text``: what rapidocr's detector, classifier and recogniser read of
lines that are rendered here. The packages' own code prepares inputs and reads results; each model is
run by ONNX Runtime and by covan, and what the two give is compared. Right are types and texts that are known.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import covan_mlir
from covan_mlir.frontend.onnx.inputs import declared
from covan_mlir.frontend.onnx.reading import read

ROOT = Path(__file__).resolve().parents[1]
TYPES = {".py": "python", ".md": "markdown", ".toml": "toml", ".mlir": "txt", ".ipynb": "ipynb", ".sh": "shell"}
"""What files are by their names; MLIR is text to magika."""
LINES = ("Compilers keep what they know", "Every kernel can name 17 lines", "The lineage holds")
_SIZE, _MARGIN = 36, 24


class Beside:
    """A session of ONNX Runtime's, whose results covan's have to equal. There is a program for each shape of calls.

    Attributes:
        error: the largest difference so far, relative to the largest element.
        calls: so far.
    """

    def __init__(self, path: str | Path, session: Any) -> None:
        self.path, self.session, self.error, self.calls = str(path), session, 0.0, 0
        (self._input,) = map(declared, read(self.path).inputs)
        self._programs: dict[tuple[int, ...], Any] = {}

    def run(self, names: Sequence[str] | None, feed: dict[str, Any]) -> list[Any]:
        """As ``InferenceSession.run``; the results are covan's."""
        (given,) = feed.values()
        array = np.asarray(given, str(self._input.dtype).removeprefix("torch."))
        if array.shape not in self._programs:
            sizes = zip(self._input.sizes or (), array.shape, strict=True)
            fixed = {
                size or f"{self._input.name}:{axis}": own
                for axis, (size, own) in enumerate(sizes)
                if isinstance(size, str)
            }
            program = covan_mlir.compile_module(self.path, dynamic_shapes=fixed)
            print(f"{Path(self.path).name}, {list(array.shape)}: {program.lineage!r}", flush=True)
            self._programs[array.shape] = program
        wanted = self.session.run(names, feed)
        results = self._programs[array.shape](array)
        results = list(results) if isinstance(results, tuple) else [results]
        for result, expected in zip(results, wanted, strict=True):
            scale = float(np.abs(expected).max()) or 1.0
            self.error = max(self.error, float(np.abs(result - expected).max()) / scale)
        self.calls += 1
        return results

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def _folder(package: str) -> Path:
    """Where an installed package lies."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class Given:
    """A session that keeps what it is given, and is answered by another one, or by a program.

    Attributes:
        calls: arguments, one call after the other.
    """

    def __init__(self, session: Any, program: Any = None) -> None:
        self.session, self.program = session, program
        self.calls: list[tuple[np.ndarray[Any, Any]]] = []

    def run(self, names: Sequence[str] | None, feed: dict[str, Any]) -> list[Any]:
        """As ``InferenceSession.run``."""
        (given,) = feed.values()
        self.calls.append((np.asarray(given, np.int32),))
        return self.session.run(names, feed) if self.program is None else [np.asarray(self.program(*self.calls[-1]))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def _files(count: int) -> list[Path]:
    """About so many of this project, of known types."""
    paths = [p for p in sorted(ROOT.rglob("*")) if p.suffix in TYPES and p.is_file() and ".venv" not in p.parts]
    return paths[:: max(len(paths) // count, 1)]


def bits() -> bool:
    """Whether fewer than one file in a hundred more is taken for another than by the model in float."""
    from magika import Magika

    magika = Magika()
    path, session = next(_folder("magika").rglob("model.onnx")), magika._onnx_session
    sizes = declared(read(str(path)).inputs[0]).sizes
    assert sizes is not None
    paths, fixed = _files(500), {str(sizes[0]): 1}
    magika._onnx_session = given = Given(session)
    calibration = paths[::5]
    for one in calibration:
        magika.identify_path(one)
    quantized = covan_mlir.quantize(str(path), given.calls, dynamic_shapes=fixed)
    print(quantized.report)
    exe, others = quantized.compile(), [one for one in paths if one not in calibration]
    right: list[int] = []
    for program in (covan_mlir.compile_module(str(path), dynamic_shapes=fixed), exe):
        magika._onnx_session = Given(session, program)
        right.append(sum(magika.identify_path(one).output.label == TYPES[one.suffix] for one in others))
    apart = max(
        float(np.abs(np.asarray(exe(*call)) - quantized.exported.module()(torch.from_numpy(call[0])).numpy()).max())
        for call in given.calls[:20]
    )
    print(f"magika: of {len(others)} files {right[0]} right in float, {right[1]} in 8 bits; from eager {apart:.1e}")
    return right[1] > right[0] - len(others) / 100


def files() -> bool:
    """Whether all files are what they are."""
    from magika import Magika

    magika = Magika()
    path = next(_folder("magika").rglob("model.onnx"))
    beside = Beside(path, magika._onnx_session)
    magika._onnx_session = beside
    told = [(p, magika.identify_path(p).output.label) for p in _files(60)]
    wrong = [(p.relative_to(ROOT), label) for p, label in told if label != TYPES[p.suffix]]
    print(f"magika: {len(told) - len(wrong)} of {len(told)} files; others: {wrong}; error {beside.error:.1e}")
    return beside.calls > 0 and beside.error < 1e-4 and len(wrong) <= len(told) // 20


def rendered(lines: Sequence[str]) -> Any:
    """Black text on white, `[height, width, 3]`, uint8."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(_SIZE)
    width = max(int(font.getlength(line)) for line in lines) + 2 * _MARGIN
    page = Image.new("RGB", (width, 2 * _SIZE * len(lines) + 2 * _MARGIN), "white")
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + 2 * _SIZE * number), line, "black", font)
    return np.asarray(page)


def text() -> bool:
    """Whether the text that is read is the text that was written."""
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR()
    folder = _folder("rapidocr_onnxruntime") / "models"
    inner = {"det": engine.text_det.infer, "cls": engine.text_cls.infer, "rec": engine.text_rec.session}
    besides = []
    for name, holder in inner.items():
        path = next(folder.glob(f"*_{name}_infer.onnx"))
        beside = Beside(path, holder.session)
        holder.session = beside
        besides.append(beside)
    boxes, _ = engine(rendered(LINES))
    texts = [row[1] for row in boxes or ()]
    errors = ", ".join(f"{beside.error:.1e} in {beside.calls} calls" for beside in besides)
    print(f"read {texts}; errors {errors}")
    right = [line.replace(" ", "") for line in LINES] == [line.replace(" ", "") for line in texts]
    return right and all(beside.calls and beside.error < 1e-3 for beside in besides)


def main() -> int:
    """Exit status: 1 if anything is read wrongly, or results differ."""
    parts: dict[str, Callable[[], bool]] = {"files": files, "bits": bits, "text": text}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(parts), action="append", help="default: all")
    chosen = parser.parse_args().only or list(parts)
    return int(not all(parts[name]() for name in chosen))


if __name__ == "__main__":
    raise SystemExit(main())
