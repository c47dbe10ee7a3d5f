"""Export of a trained network: as ONNX graphs for ONNX Runtime, and as a page that runs it in a browser."""
