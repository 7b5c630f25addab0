"""gRPC requests: valid ones, and every way in which one can be wrong. They are made with the official client's messages."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from differential_drafts import Draft, drafted, raw
from differential_models import TWINS, Twin
from tritonclient.grpc import service_pb2

_FIELDS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@dataclass(slots=True)
class GrpcRequest:
    category: str
    method: str
    message: Any
    is_streamed: bool = False


def raw_request(rng: random.Random, twins: tuple[Twin, ...] = TWINS) -> GrpcRequest:
    draft = drafted(rng, twins)
    message = _message(draft)
    for one in message.inputs:
        message.raw_input_contents.append(raw(draft.inputs[one.name]))
    return _streamed(rng, GrpcRequest("gRPC raw", "ModelInfer", message))


def typed_request(rng: random.Random, twins: tuple[Twin, ...] = TWINS) -> GrpcRequest:
    draft = drafted(rng, twins, without=("FP16", "BF16"))
    message = _message(draft)
    for one in message.inputs:
        getattr(one.contents, _FIELDS[draft.twin.datatype]).extend(draft.inputs[one.name].ravel().tolist())
    return _streamed(rng, GrpcRequest("gRPC typed", "ModelInfer", message))


def classes_request(rng: random.Random) -> GrpcRequest:
    twins = tuple(each for each in TWINS if each.name in ("scores", "counts", "add_sub", "same_fp64", "same_uint8"))
    made = raw_request(rng, twins)
    made.category = "gRPC classification"
    twin = next(each for each in twins if each.name == made.message.model_name)
    del made.message.outputs[:]
    for name in twin.outputs:
        made.message.outputs.add(name=name).parameters["classification"].int64_param = rng.randint(1, 6)
    return made


def wrong_request(rng: random.Random) -> GrpcRequest:
    """A good one with one thing wrong."""
    name = rng.choice(tuple(MISTAKES))
    while True:
        made = rng.choice((raw_request, typed_request))(rng)
        if MISTAKES[name](rng, made.message) is not False:
            made.category = f"gRPC, {name}"
            return made


def other_request(rng: random.Random) -> GrpcRequest:
    """Anything but inference."""
    name = "nobody" if rng.random() < 0.2 else rng.choice(TWINS).name
    version = rng.choice(("", "", "1", "1", "3", "9", "0", "x", "-1"))
    method = rng.choice(
        ("ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics",
         "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
         "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus",
         "CudaSharedMemoryUnregister")
    )  # fmt: skip
    message = getattr(service_pb2, f"{method}Request")()
    fields = {field.name for field in message.DESCRIPTOR.fields}
    if "version" in fields:
        message.name, message.version = name, version
    elif "model_name" in fields:
        message.model_name = "nobody"
    elif "key" in fields:
        message.name, message.key = "some", rng.choice(("/tonnage-nothing", "", "tonnage/nothing"))
        message.offset, message.byte_size = rng.choice((0, 8)), rng.choice((0, 64))
    elif "name" in fields:
        message.name = rng.choice(("", "nobody"))
    elif "ready" in fields:
        message.ready = rng.random() < 0.5
    return GrpcRequest(f"gRPC {method}", method, message)


def _message(draft: Draft) -> Any:
    message = service_pb2.ModelInferRequest(model_name=draft.twin.name, model_version=draft.version, id=draft.id)
    for name, array in draft.inputs.items():
        message.inputs.add(name=name, datatype=draft.twin.datatype, shape=array.shape)
    for name in draft.outputs or ():
        message.outputs.add(name=name)
    return message


def _streamed(rng: random.Random, made: GrpcRequest) -> GrpcRequest:
    made.is_streamed = rng.random() < 0.15
    return made


# -- mistakes: each changes a message, and returns False where it cannot -------------------------------------------------------

Mistake = Callable[[random.Random, Any], object]


def _set(name: str, *choices: Any) -> Mistake:
    """A field of the first input."""
    return lambda rng, message: setattr(message.inputs[0], name, rng.choice(choices))


def _shape(*choices: list[int]) -> Mistake:
    def mistake(rng: random.Random, message: Any) -> None:
        message.inputs[0].shape[:] = rng.choice(choices)

    return mistake


def _other_shape(rng: random.Random, message: Any) -> None:
    shape = list(message.inputs[0].shape)
    place = rng.randrange(len(shape))
    change = rng.choice(("longer", "shorter", "more axes", "fewer axes", "many rows"))
    if change == "more axes":
        shape.insert(place, 1)
    elif change == "fewer axes":
        del shape[place]
    else:
        shape[place] = {"longer": shape[place] + 1, "shorter": max(shape[place] - 1, 0), "many rows": 50}[change]
    message.inputs[0].shape[:] = shape


def _raw_size(rng: random.Random, message: Any) -> object:
    if not message.raw_input_contents:
        return False
    content = message.raw_input_contents[0]
    message.raw_input_contents[0] = rng.choice((content[:-1], content + b"\0", b"", content * 2, content[1:]))
    return True


def _raw_count(rng: random.Random, message: Any) -> object:
    if not message.raw_input_contents:
        return False
    if rng.random() < 0.5:
        message.raw_input_contents.append(b"1234")
    else:
        del message.raw_input_contents[-1]
    return True


def _both(rng: random.Random, message: Any) -> object:
    if not message.raw_input_contents:
        return False
    message.inputs[0].contents.fp32_contents.extend([1.0] * rng.randint(0, 4))
    return True


def _contents_count(rng: random.Random, message: Any) -> object:
    if message.raw_input_contents:
        return False
    ((_, contents),) = message.inputs[0].contents.ListFields()
    if rng.random() < 0.5:
        contents.append(contents[0])
    else:
        del contents[-1]
    return True


def _other_contents(rng: random.Random, message: Any) -> object:
    """In a field of another datatype, alone or beside the right one."""
    if message.raw_input_contents:
        return False
    contents, count = message.inputs[0].contents, 1
    for each in message.inputs[0].shape:
        count *= each
    if rng.random() < 0.5:
        contents.Clear()
    field = rng.choice(("fp32_contents", "int_contents", "uint64_contents", "bytes_contents", "bool_contents"))
    getattr(contents, field).extend(([b"1"] if field == "bytes_contents" else [1]) * count)
    return True


def _out_of_range(rng: random.Random, message: Any) -> object:
    one = message.inputs[0]
    if message.raw_input_contents or one.datatype not in ("INT8", "INT16", "UINT8", "UINT16"):
        return False
    contents = getattr(one.contents, _FIELDS[one.datatype])
    contents[0] = rng.choice((2**20, 300, 70000))
    return True


def _without_data(_: random.Random, message: Any) -> None:
    del message.raw_input_contents[:]
    for one in message.inputs:
        one.ClearField("contents")


def _twice(_: random.Random, message: Any) -> None:
    message.inputs.add().CopyFrom(message.inputs[0])
    if message.raw_input_contents:
        message.raw_input_contents.append(message.raw_input_contents[0])


def _missing(_: random.Random, message: Any) -> object:
    if len(message.inputs) < 2:
        return False
    del message.inputs[-1]
    del message.raw_input_contents[1:]
    return True


def _parameter(name: str, kind: str, *choices: Any) -> Mistake:
    return lambda rng, message: setattr(message.parameters[name], kind, rng.choice(choices))


def _output_parameter(name: str, kind: str, *choices: Any) -> Mistake:
    def mistake(rng: random.Random, message: Any) -> object:
        if not message.outputs:
            return False
        setattr(message.outputs[0].parameters[name], kind, rng.choice(choices))
        return True

    return mistake


def _classification(rng: random.Random, message: Any) -> object:
    if message.inputs[0].datatype == "BYTES":  # which ends a Triton server
        return False
    return _output_parameter("classification", "int64_param", 0, -1, 10**6)(rng, message)


def _unknown_region(rng: random.Random, message: Any) -> object:
    if message.raw_input_contents:
        return False
    one = message.inputs[0]
    one.ClearField("contents")
    one.parameters["shared_memory_region"].string_param = "nobody"
    if rng.random() < 0.7:
        one.parameters["shared_memory_byte_size"].int64_param = rng.choice((0, 8, 64))
    return True


MISTAKES: dict[str, Mistake] = {
    "unknown input": _set("name", "nobody", "", "X"),
    "other datatype": _set("datatype", "FP32", "INT8", "BYTES", "FP64", "UINT8", "BOOL", "INT64", "FP16"),
    "unknown datatype": _set("datatype", "FP31", "fp32", "", "STRING", "TYPE_FP32"),
    "other shape": _other_shape,
    "impossible shape": _shape([-1], [-1, 2], [], [2**31, 2**31], [2**62, 4], [2**40], [0], [0, 2], [-(2**63)]),
    "wrong size of raw contents": _raw_size,
    "wrong count of raw contents": _raw_count,
    "raw and typed contents": _both,
    "wrong count of typed contents": _contents_count,
    "contents of another datatype": _other_contents,
    "number out of range": _out_of_range,
    "no data": _without_data,
    "duplicate input": _twice,
    "missing input": _missing,
    "no inputs": lambda _, message: message.ClearField("inputs"),
    "unknown output": lambda rng, message: message.outputs.add(name=rng.choice(("nobody", "", "Y"))) and None,
    "duplicate output": lambda _, message: message.outputs.add().CopyFrom(message.outputs[0]) if message.outputs else False,
    "unknown model": lambda rng, message: setattr(message, "model_name", rng.choice(("nobody", "", "/", "..", " "))),
    "unknown version": lambda rng, message: setattr(
        message, "model_version", rng.choice(("9", "2", "0", "x", "-1", "1.5", " 1", "01", "9" * 20))
    ),
    "own parameter": _parameter("own", "string_param", "text", ""),
    "own number": _parameter("own", "double_param", 1.5, -3.0),
    "priority": _parameter("priority", "int64_param", 0, 1, 3, -1),
    "unsigned priority": _parameter("priority", "uint64_param", 0, 1, 3),
    "priority as text": _parameter("priority", "string_param", "1", "text"),
    "priority as truth": _parameter("priority", "bool_param", True, False),
    "timeout": _parameter("timeout", "int64_param", 0, 10**9, -1),
    "timeout as text": _parameter("timeout", "string_param", "1", "text"),
    "sequence": _parameter("sequence_id", "int64_param", 0, 3),
    "sequence as truth": _parameter("sequence_id", "bool_param", True),
    "classification": _classification,
    "classification as text": _output_parameter("classification", "string_param", "1", "text"),
    "unknown region": _unknown_region,
    "unknown region for an output": _output_parameter("shared_memory_region", "string_param", "nobody"),
    "region as a number": _output_parameter("shared_memory_region", "int64_param", 3),
}  # fmt: skip
