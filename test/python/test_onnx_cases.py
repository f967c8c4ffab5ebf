"""A fixed tenth of the cases that ONNX tests backends with: translated all, some of them compiled."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from onnx_cases import cases, judged

from covan_mlir.frontend.onnx.registry import operators


def test_translations_of_each_tenth_case() -> None:
    rows = judged(list(cases())[::10], compiled=False)
    assert rows is not None
    count = Counter(row.outcome for row in rows)
    assert [row for row in rows if row.outcome in ("differs", "fails")] == []
    scope = len(rows) - count["out of scope"]
    assert count["matches"] >= 0.92 * scope, [row for row in rows if row.outcome == "refused"]


def test_programs_of_some_cases() -> None:
    names = [
        "test_add",
        "test_conv_with_strides_padding",
        "test_gru_defaults",
        "test_matmulinteger",
        "test_qlinearconv",
    ]
    names += ["test_maxpool_2d_same_lower", "test_gather_negative_indices", "test_resize_upsample_scales_cubic"]
    names += [
        "test_layer_normalization_4d_axis1",
        "test_scatternd_add",
        "test_dynamicquantizelinear",
        "test_add_uint16",
    ]
    rows = judged(names)
    assert rows is not None
    assert {row.name: row.outcome for row in rows} == dict.fromkeys(names, "matches")


def test_operators_are_declared_with_opsets_that_onnx_has() -> None:
    from onnx import defs

    unknown = []
    for known in operators():
        if known.domain != "":
            continue
        try:
            defs.get_schema(known.name, min(known.until or defs.onnx_opset_version(), defs.onnx_opset_version()))
        except defs.SchemaError:
            unknown.append(known.name)
    assert unknown == ["SimplifiedLayerNormalization"]  # ONNX Runtime has it in ONNX's domain
