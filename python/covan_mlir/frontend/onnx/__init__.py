"""ONNX models as exported programs of torch: each node is an action, and the ATen operations of it are its calls."""
