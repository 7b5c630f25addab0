"""The shape of cluster.yaml. The JSON Schema for editors is generated from these models."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tonnage.hardware.quantities import (
    BYTES_PATTERN,
    RATE_PATTERN,
    SECONDS_PATTERN,
    parse_bytes,
    parse_rate,
    parse_seconds,
)


def quantity(parse: Callable[[object], int | float]) -> BeforeValidator:
    def read(text: object) -> int | float:
        try:
            return parse(text)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from error

    return BeforeValidator(read)


def _pattern(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


def _checked_addresses(given: object) -> object:
    """One sentence, where a union of types would complain once for each."""
    entries = given if isinstance(given, list) else [given]
    if not entries or not all(isinstance(entry, str) for entry in entries):
        raise PydanticCustomError(
            "address", "must be an address as text, or a list of them, not {given}", {"given": f"{given!r:.40}"}
        )
    return given


Bytes = Annotated[int, quantity(parse_bytes), Field(gt=0), _pattern(BYTES_PATTERN, "512 GiB")]
Rate = Annotated[int, quantity(parse_rate), Field(gt=0), _pattern(RATE_PATTERN, "400 Gbit/s")]
Seconds = Annotated[float, quantity(parse_seconds), _pattern(SECONDS_PATTERN, "2 us")]
Addresses = Annotated[str | list[str], BeforeValidator(_checked_addresses)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GpuGroup(Section):
    """Equal GPUs of a node."""

    model: str = Field(description="Name of the GPU as `tonnage gpus` lists it.", examples=["H200", "RTX 4090"])
    count: int = Field(1, ge=1, le=1024, description="How many of them.")


class Cpu(Section):
    """The processors of a node."""

    cores: int = Field(ge=1, description="Physical cores, all sockets together.")
    sockets: int = Field(1, ge=1, description="Number of processors.")


class LinkSection(Section):
    """A connection: of GPUs inside a node, or of nodes."""

    kind: str = Field(
        description="`nvlink`, `infinity_fabric` or `pcie` inside a node; "
        "`ethernet`, `infiniband`, `roce` or any other word between nodes.",
        examples=["nvlink", "pcie", "infiniband", "ethernet"],
    )
    between: list[str] | None = Field(
        None,
        min_length=1,
        description="What it connects. Inside a node: `gpu0`, `gpu1`, `host`, or a switch of the node; "
        "left out, `pcie` connects each GPU with the host and any other kind all GPUs. "
        "Between nodes: names of nodes, of one node of several (`box-2`) or of switches; `all` means every node.",
    )
    generation: int | None = Field(None, ge=1, le=6, description="PCIe or NVLink generation.")
    lanes: int | None = Field(None, ge=1, le=32, description="PCIe lanes.")
    bandwidth: Rate | None = Field(
        None, description="Of one direction. Left out, PCIe and NVLink take it from generation, lanes and catalogue."
    )
    bandwidth_matrix: list[list[Rate | None]] | None = Field(
        None,
        description="Instead of `bandwidth`: a row for each member of `between`, from row to column; null for no link.",
    )
    latency: Seconds | None = Field(None, description="Of one message in one direction.")
    latency_matrix: list[list[Seconds | None]] | None = Field(
        None,
        description="Instead of `latency`: a row for each member of `between`, from row to column; null if not known.",
    )
    shared: bool = Field(False, description="All traffic divides the bandwidth, as on a bus or an uplink.")


class NodeSection(Section):
    """One machine, or `count` equal machines."""

    name: Name = Field(description="Name of the node; with a count above 1 the nodes are called NAME-0, NAME-1, ...")
    count: int = Field(1, ge=1, le=100_000, description="How many equal nodes.")
    gpus: list[GpuGroup] = Field([], description="GPUs, numbered gpu0, gpu1, ... in this order; none for a CPU node.")
    cpu: Cpu = Field(description="Processors.")
    memory: Bytes = Field(description="Main memory.")
    speed: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="Of its devices, times that of the machine where costs were measured: 2 for twice as fast.",
    )
    address: Addresses | None = Field(
        None,
        description="Host name or IP address where the node is reached, with or without a port. "
        "For several nodes a list, or a range such as `10.0.0.[11-14]`.",
        examples=["10.0.0.7", "box3.lan:8643", "10.0.0.[11-14]"],
    )
    switches: list[Name] = Field([], description="Switches inside the node, such as PCIe switches, for use in links.")
    links: list[LinkSection] = Field([], description="Links inside the node.")
    labels: dict[str, str] = Field({}, description="Free names and values, for selecting nodes.")
    engine: str | None = Field(None, description="Where programs for this node are sent.", examples=["slurm", "local"])
    price_usd_hour: float | None = Field(None, ge=0, description="Price of the whole node for an hour.")
    power_watts: float | None = Field(None, gt=0, description="Power that the whole node may draw.")
    idle_watts: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Power that the whole node draws when it does nothing."
    )


class ClusterFile(Section):
    """A cluster: its nodes and how they are connected."""

    name: Name = Field("cluster", description="Name of the cluster.")
    nodes: list[NodeSection] = Field(min_length=1, description="The machines.")
    switches: list[Name] = Field([], description="Network switches, for use in links.")
    links: list[LinkSection] = Field([], description="Links between nodes.")
    inputs: str | None = Field(None, description="The node where the inputs of a network come from.")
    outputs: str | None = Field(None, description="The node where the outputs of a network must end.")
