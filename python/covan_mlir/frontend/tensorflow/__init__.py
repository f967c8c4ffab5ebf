"""Models of TensorFlow, Keras and TFLite: converted to ONNX by tf2onnx, and translated as ONNX models are."""
