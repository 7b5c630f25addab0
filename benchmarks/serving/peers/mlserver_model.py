"""The model of MLServer: the ONNX file that its settings name."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options, ["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = payload.inputs[0]
        made = self.session.get_outputs()[0].name
        result = self.session.run([made], {given.name: NumpyCodec.decode_input(given).astype("float32")})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output(made, result)])
