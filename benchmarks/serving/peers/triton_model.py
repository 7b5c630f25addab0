"""The model of Triton's Python backend: the ONNX file beside it, with all requests that came together as one batch."""

from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, arguments):
        path = Path(arguments["model_repository"]) / arguments["model_version"] / "model.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self.given, self.made = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name

    def execute(self, requests):
        parts = [triton.get_input_tensor_by_name(request, self.given).as_numpy() for request in requests]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        made = self.session.run([self.made], {self.given: whole})[0]
        ends = np.cumsum([len(part) for part in parts])[:-1]
        tensors = [triton.Tensor(self.made, part) for part in np.split(made, ends)]
        return [triton.InferenceResponse([tensor]) for tensor in tensors]
