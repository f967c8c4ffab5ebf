"""ONNX models as exported programs of torch: each ONNX node an action, the ATen operations that stand for it its calls."""
