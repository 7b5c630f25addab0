"""The messages of the Open Inference Protocol over gRPC, with Triton's additions, described here and made by protobuf
at run time.

Names and numbers are the protocol's. A message is a line: its fields are `name number type`; `[type]` is repeated,
`{type}` a map from strings, `{uint64:type}` one from numbers, and `name?` is one choice of several. Messages that are
only sent and never looked at, such as those of CUDA's shared memory, have just the fields that are needed.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: live 1 bool
ServerReadyRequest:
ServerReadyResponse: ready 1 bool
ModelReadyRequest: name 1 string, version 2 string
ModelReadyResponse: ready 1 bool
ServerMetadataRequest:
ServerMetadataResponse: name 1 string, version 2 string, extensions 3 [string]
ModelMetadataRequest: name 1 string, version 2 string
TensorMetadata: name 1 string, datatype 2 string, shape 3 [int64]
ModelMetadataResponse: name 1 string, versions 2 [string], platform 3 string, inputs 4 [TensorMetadata], outputs 5 \
[TensorMetadata]

InferParameter: bool_param? 1 bool, int64_param? 2 int64, string_param? 3 string, double_param? 4 double, \
uint64_param? 5 uint64
InferTensorContents: bool_contents 1 [bool], int_contents 2 [int32], int64_contents 3 [int64], uint_contents 4 \
[uint32], uint64_contents 5 [uint64], fp32_contents 6 [float], fp64_contents 7 [double], bytes_contents 8 [bytes]
InferInputTensor: name 1 string, datatype 2 string, shape 3 [int64], parameters 4 {InferParameter}, contents 5 \
InferTensorContents
InferRequestedOutputTensor: name 1 string, parameters 2 {InferParameter}
ModelInferRequest: model_name 1 string, model_version 2 string, id 3 string, parameters 4 {InferParameter}, inputs 5 \
[InferInputTensor], outputs 6 [InferRequestedOutputTensor], raw_input_contents 7 [bytes]
InferOutputTensor: name 1 string, datatype 2 string, shape 3 [int64], parameters 4 {InferParameter}, contents 5 \
InferTensorContents
ModelInferResponse: model_name 1 string, model_version 2 string, id 3 string, parameters 4 {InferParameter}, outputs \
5 [InferOutputTensor], raw_output_contents 6 [bytes]
ModelStreamInferResponse: error_message 1 string, infer_response 2 ModelInferResponse

ModelConfigRequest: name 1 string, version 2 string
ModelConfigResponse: config 1 ModelConfig
ModelTensorReshape: shape 1 [int64]
ModelInput: name 1 string, data_type 2 DataType, format 3 Format, dims 4 [int64], reshape 5 ModelTensorReshape, \
is_shape_tensor 6 bool, allow_ragged_batch 7 bool, optional 8 bool
ModelOutput: name 1 string, data_type 2 DataType, dims 3 [int64], label_filename 4 string, reshape 5 \
ModelTensorReshape, is_shape_tensor 6 bool
ModelInstanceGroup: name 1 string, count 2 int32, gpus 3 [int32], kind 4 Kind, profile 5 [string], passive 7 bool, \
host_policy 9 string
Latest: num_versions 1 uint32
All:
Specific: versions 1 [int64]
ModelVersionPolicy: latest? 1 Latest, all? 2 All, specific? 3 Specific
ModelQueuePolicy: timeout_action 1 TimeoutAction, default_timeout_microseconds 2 uint64, allow_timeout_override 3 \
bool, max_queue_size 4 uint32
ModelDynamicBatching: preferred_batch_size 1 [int32], max_queue_delay_microseconds 2 uint64, preserve_ordering 3 \
bool, priority_levels 4 uint64, default_priority_level 5 uint64, default_queue_policy 6 ModelQueuePolicy, \
priority_queue_policy 7 {uint64:ModelQueuePolicy}
ModelParameter: string_value 1 string
ModelConfig: name 1 string, platform 2 string, version_policy 3 ModelVersionPolicy, max_batch_size 4 int32, input 5 \
[ModelInput], output 6 [ModelOutput], instance_group 7 [ModelInstanceGroup], default_model_filename 8 string, \
dynamic_batching? 11 ModelDynamicBatching, parameters 14 {ModelParameter}, backend 17 string

StatisticDuration: count 1 uint64, ns 2 uint64
InferStatistics: success 1 StatisticDuration, fail 2 StatisticDuration, queue 3 StatisticDuration, compute_input 4 \
StatisticDuration, compute_infer 5 StatisticDuration, compute_output 6 StatisticDuration, cache_hit 7 \
StatisticDuration, cache_miss 8 StatisticDuration
InferBatchStatistics: batch_size 1 uint64, compute_input 2 StatisticDuration, compute_infer 3 StatisticDuration, \
compute_output 4 StatisticDuration
ModelStatistics: name 1 string, version 2 string, last_inference 3 uint64, inference_count 4 uint64, execution_count \
5 uint64, inference_stats 6 InferStatistics, batch_stats 7 [InferBatchStatistics]
ModelStatisticsRequest: name 1 string, version 2 string
ModelStatisticsResponse: model_stats 1 [ModelStatistics]

ModelRepositoryParameter: bool_param? 1 bool, int64_param? 2 int64, string_param? 3 string, bytes_param? 4 bytes
RepositoryIndexRequest: repository_name 1 string, ready 2 bool
ModelIndex: name 1 string, version 2 string, state 3 string, reason 4 string
RepositoryIndexResponse: models 1 [ModelIndex]
RepositoryModelLoadRequest: repository_name 1 string, model_name 2 string, parameters 3 {ModelRepositoryParameter}
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: repository_name 1 string, model_name 2 string, parameters 3 {ModelRepositoryParameter}
RepositoryModelUnloadResponse:

SystemSharedMemoryStatusRequest: name 1 string
RegionStatus: name 1 string, key 2 string, offset 3 uint64, byte_size 4 uint64
SystemSharedMemoryStatusResponse: regions 1 {RegionStatus}
SystemSharedMemoryRegisterRequest: name 1 string, key 2 string, offset 3 uint64, byte_size 4 uint64
SystemSharedMemoryRegisterResponse:
SystemSharedMemoryUnregisterRequest: name 1 string
SystemSharedMemoryUnregisterResponse:
CudaSharedMemoryStatusRequest: name 1 string
CudaSharedMemoryStatusResponse:
CudaSharedMemoryRegisterRequest: name 1 string, raw_handle 2 bytes, device_id 3 int64, byte_size 4 uint64
CudaSharedMemoryRegisterResponse:
CudaSharedMemoryUnregisterRequest: name 1 string
CudaSharedMemoryUnregisterResponse:
"""
_ENUMERATIONS = {
    "DataType": "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 TYPE_INT32 "
    "TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16",
    "Format": "FORMAT_NONE FORMAT_NHWC FORMAT_NCHW",
    "Kind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
    "TimeoutAction": "REJECT DELAY",
}
_SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_MESSAGE, _ENUMERATION, _OPTIONAL, _REPEATED = 11, 14, 1, 3


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tonnage/inference.proto", package=PACKAGE, syntax="proto3")
    for name, values in _ENUMERATIONS.items():
        enumeration = file.enum_type.add(name=name)
        for number, value in enumerate(values.split()):
            enumeration.value.add(name=value, number=number)
    for line in filter(None, map(str.strip, _MESSAGES.replace("\\\n", "").splitlines())):
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        for field in filter(None, map(str.strip, re.split(r",(?![^{]*})", fields))):
            _add_field(message, *field.split())
    return file


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name.rstrip("?"), number=int(number), label=_OPTIONAL)
    if kind.startswith("["):
        field.label = _REPEATED
    elif kind.startswith("{"):
        field.label, kind = _REPEATED, _map_entry(message, name, kind[1:-1])
    _set_type(field, kind.strip("[]"))
    if name.endswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0


def _map_entry(message: Any, name: str, kind: str) -> str:
    """A map is a list of entries that protobuf knows to be one."""
    key, _, value = kind.rpartition(":")
    title = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=title)
    entry.options.map_entry = True
    for number, (field, each) in enumerate((("key", key or "string"), ("value", value)), start=1):
        _set_type(entry.field.add(name=field, number=number, label=_OPTIONAL), each)
    return f"{message.name}.{title}"


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _ENUMERATION if kind in _ENUMERATIONS else _MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _classes() -> dict[str, Any]:
    pool = (
        descriptor_pool.DescriptorPool()
    )  # of its own: a client in the same process has its own words for the same names
    file = _file()
    pool.Add(file)
    return dict(message_factory.GetMessageClassesForFiles([file.name], pool))


_CLASSES = _classes()


def message(name: str) -> Any:
    """The class of a message."""
    return _CLASSES[f"{PACKAGE}.{name}"]
