"""Where networks come from: exported programs, ONNX files, profiles, and files of our own."""
