"""Export of a trained network as ONNX graphs for ONNX Runtime."""
