"""Our description of the protocol's messages against that of the official client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tritonclient", reason="tritonclient is not installed: pip install 'tritonclient[http,grpc]'")

from tritonclient.grpc import model_config_pb2, service_pb2

from tonnage.serve import grpc_messages

# Theirs are nested where ours are not.
NESTED = {
    "TensorMetadata": "ModelMetadataResponse.TensorMetadata",
    "InferInputTensor": "ModelInferRequest.InferInputTensor",
    "InferRequestedOutputTensor": "ModelInferRequest.InferRequestedOutputTensor",
    "InferOutputTensor": "ModelInferResponse.InferOutputTensor",
    "ModelIndex": "RepositoryIndexResponse.ModelIndex",
    "Latest": "ModelVersionPolicy.Latest",
    "All": "ModelVersionPolicy.All",
    "Specific": "ModelVersionPolicy.Specific",
    "RegionStatus": "SystemSharedMemoryStatusResponse.RegionStatus",
    "Kind": "ModelInstanceGroup.Kind",
    "Format": "ModelInput.Format",
    "TimeoutAction": "ModelQueuePolicy.TimeoutAction",
}
OURS = sorted(grpc_messages._CLASSES)


def their_descriptor(name: str) -> Any:
    first, *rest = NESTED.get(name, name).split(".")
    file = service_pb2.DESCRIPTOR if first in service_pb2.DESCRIPTOR.message_types_by_name else None
    found = (file or model_config_pb2.DESCRIPTOR).message_types_by_name.get(first)
    if found is None:
        return model_config_pb2.DESCRIPTOR.enum_types_by_name[first]
    for each in rest:
        found = found.nested_types_by_name.get(each) or found.enum_types_by_name[each]
    return found


def shape_of(field: Any) -> tuple[Any, ...]:
    """What is on the wire: number, type, repeated or not, and what kind of thing is inside."""
    inside = field.message_type or field.enum_type
    name = inside.name if inside is not None else ""
    return field.number, field.type, field.is_repeated, name


@pytest.mark.parametrize("full_name", OURS)
def test_fields_have_the_protocols_names_numbers_and_types(full_name: str) -> None:
    name = full_name.removeprefix(f"{grpc_messages.PACKAGE}.")
    ours = grpc_messages._CLASSES[full_name].DESCRIPTOR
    theirs = their_descriptor(name).fields_by_name
    assert {field.name: shape_of(field) for field in ours.fields} == {
        field.name: shape_of(theirs[field.name]) for field in ours.fields
    }


@pytest.mark.parametrize("name", sorted(grpc_messages._ENUMERATIONS))
def test_enumerations_have_the_protocols_numbers(name: str) -> None:
    ours = {value: number for number, value in enumerate(grpc_messages._ENUMERATIONS[name].split())}
    assert ours == {value.name: value.number for value in their_descriptor(name).values}


def test_every_method_of_the_client_is_offered_but_settings() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert service.full_name == grpc_messages.SERVICE
    offered = {name.removesuffix("Request") for name in map(_short, OURS) if name.endswith("Request")}
    offered |= {"ModelStreamInfer"}  # its requests are those of ModelInfer
    not_here = {"LogSettings", "TraceSetting"}  # logs and traces are not changed over the network
    assert offered == {method.name for method in service.methods} - not_here


def _short(full_name: str) -> str:
    return full_name.rpartition(".")[2]
