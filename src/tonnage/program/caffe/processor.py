"""Ways to run a network on a processor that are faster than layer by layer: graphs of oneDNN, which TorchScript makes,
onnxruntime and OpenVINO.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from tonnage.errors import MissingDependency, UsageError
from tonnage.program.caffe.folding import Weights
from tonnage.program.caffe.network import Network
from tonnage.program.caffe.onnx_export import onnx_model
from tonnage.program.no_telemetry import keep_quiet

Run: TypeAlias = Callable[..., tuple[Tensor, ...]]
_WARM_UPS = 3  # the first two show TorchScript what it runs, and the third compiles
_MOST_MODEL_BYTES = 2**31 - 1  # of one message of protobuf


def seconds_of(run: Callable[..., object], inputs: tuple[Tensor, ...]) -> float:
    """How long one run takes. One thread is timed by its own clock, so that whatever else runs here does not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 and inputs[0].device.type == "cpu" else time.perf_counter
    start = clock()
    run(*inputs)
    return clock() - start


def together(module: nn.Module) -> Run:
    """Layer by layer, with the channels of images together."""

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        images = (each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in inputs)
        made: tuple[Tensor, ...] = module(*images)
        return made

    return run


def compiled(module: nn.Module, examples: tuple[Tensor, ...]) -> Run:
    """For inputs of the shapes of the examples; oneDNN runs chains of layers as one, in its own order of weights and
    images. Raises `MissingDependency` where TorchScript or oneDNN are not to be had."""
    script: Any = torch.jit
    mkldnn: Any = torch.backends.mkldnn
    if not mkldnn.is_available() or not script._state._enabled.enabled:
        raise MissingDependency("this torch has no oneDNN or no TorchScript")
    before = script.onednn_fusion_enabled()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of what depends on shapes, which stay as they are
        try:
            script.enable_onednn_fusion(True)
            made = script.freeze(script.trace(module.eval(), examples, check_trace=False))
            for _ in range(_WARM_UPS):
                made(*examples)
        finally:
            script.enable_onednn_fusion(before)

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        found = made(*inputs)
        return found if isinstance(found, tuple) else (found,)

    return run


def by_onnxruntime(network: Network, weights: Weights, *, free_batch: bool) -> Run:
    """Raises `MissingDependency` without onnxruntime, and `UsageError` or `InvalidFile` where it cannot run the network."""
    keep_quiet()
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingDependency("onnxruntime is not installed") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    message = _message(network, weights, free_batch=free_batch, for_speed=True)
    try:
        session = onnxruntime.InferenceSession(message, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for everything that can be wrong
        raise UsageError(f"onnxruntime: {' '.join(str(error).split())[:500]}") from error
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        given = {name: each.contiguous().numpy() for name, each in zip(names, inputs, strict=True)}
        return tuple(torch.from_numpy(each) for each in session.run(None, given))

    return run


def by_openvino(network: Network, weights: Weights) -> Run:
    """For inputs of the network's shapes. Raises `MissingDependency` without OpenVINO, and `UsageError` or `InvalidFile`
    where it cannot run the network."""
    keep_quiet()
    try:
        import openvino
    except ImportError:
        raise MissingDependency("openvino is not installed") from None
    settings = {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    core = openvino.Core()
    try:
        # Written plainly: what makes onnxruntime fast hides from OpenVINO what it could do at once.
        message = _message(network, weights, free_batch=False, for_speed=False)
        model = core.compile_model(core.read_model(message), "CPU", settings)
    except RuntimeError as error:
        raise UsageError(f"openvino: {' '.join(str(error).split())[:500]}") from error
    request = model.create_infer_request()

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        found = request.infer([each.contiguous().numpy() for each in inputs], share_inputs=True)
        return tuple(torch.from_numpy(found[port]) for port in model.outputs)

    return run


def _message(network: Network, weights: Weights, *, free_batch: bool, for_speed: bool) -> bytes:
    if sum(each.nbytes for arrays in weights.values() for each in arrays) > _MOST_MODEL_BYTES - 2**20:
        raise UsageError("its weights do not fit into a message of ONNX")
    message: bytes = onnx_model(network, weights, free_batch=free_batch, for_speed=for_speed).SerializeToString()
    return message
