"""The shape of service.yaml. The JSON Schema for editors is generated from these models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tonnage.hardware.cluster_models import Bytes, Seconds, Section

Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, StringConstraints(min_length=1)]


class ResourcesSection(Section):
    """What each instance of the service gets, and no more."""

    cpus: float = Field(default=1.0, ge=0.01, le=100_000, description="CPU cores.")
    memory: Bytes = Field(default=4 << 30, description="Memory, without swap.")
    gpus: int | None = Field(default=None, ge=0, le=1024, description="Number of GPUs; one, if only `gpu` is given.")
    gpu: str = Field(default="", description="Only GPUs of this model, as `tonnage gpus` lists it.", examples=["H200"])
    pids: int = Field(default=4096, ge=16, description="Processes and threads at most.")


class PortsSection(Section):
    """Where clients find the service: on this machine's loopback, or at the Service of a cluster."""

    http: Port = Field(default=8000, description="REST, health and the page.")
    grpc: Port = Field(default=8001, description="gRPC.")
    metrics: Port = Field(default=8002, description="Prometheus.")


class TlsSection(Section):
    """For https and gRPC over TLS: two files, or in a cluster a Secret of the type kubernetes.io/tls."""

    certificate: Text | None = Field(default=None, description="File with the certificate and its chain, in PEM.")
    key: Text | None = Field(default=None, description="File with the private key, in PEM.")
    secret: Text | None = Field(default=None, description="Name of the Secret with tls.crt and tls.key.")


class ServerSection(Section):
    """The options of `tonnage serve`."""

    host: Text = Field(default="127.0.0.1", description="Address to listen at. In a container it is always 0.0.0.0.")
    control: Literal["none", "explicit", "poll"] = Field(
        default="explicit",
        description="Who loads and unloads models: clients (explicit), the folder (poll) or nobody (none).",
    )
    load: list[Text] = Field(
        default=["*"], description="Models to load at the beginning, where control is explicit; `*` for all."
    )
    poll_seconds: float = Field(
        default=5.0, ge=0.1, allow_inf_nan=False, description="How often the folder is looked at."
    )
    device: Text = Field(default="cpu", description="cpu, cuda for all GPUs, or cuda:0,2 for some.")
    access: Text | None = Field(
        default=None,
        description="File with bearer tokens; in a cluster `secret:NAME`, a Secret with the key access.yaml.",
    )
    rate_limit: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="Requests a second for each client; 0 for no limit."
    )
    body_limit: Bytes = Field(default=1 << 30, description="The largest request.")
    memory_limit: Bytes | None = Field(
        default=None, description="Main memory for all models; else as much as the machine or the container has free."
    )
    in_flight_limit: Bytes = Field(default=4 << 30, description="Bytes of all requests that are not answered yet.")
    connection_limit: int = Field(default=10_000, ge=1, description="HTTP connections at once.")
    log_requests: bool = Field(default=False, description="Log each request, not only those that fail.")
    drain_seconds: float = Field(default=60.0, ge=0, le=86400, description="How long SIGTERM waits for answers.")
    log_format: Literal["text", "json"] = Field(default="text", description="Form of the log.")
    tls: TlsSection | None = Field(default=None, description="Certificate and key.")


class AutoscaleSection(Section):
    """More and fewer instances in a cluster, by how long requests wait for one."""

    min: int = Field(default=1, ge=1, description="Instances at least.")
    max: int = Field(ge=1, description="Instances at most.")
    queue_delay: Seconds = Field(description="Mean time that requests may wait in the queue.")


class ServiceFile(Section):
    """An inference server, its models, and the container that it runs in."""

    name: str = Field(default="", description="What the service is called; small letters, digits and dashes.")
    image: str = Field(default="", description="Image with Python and Tonnage, or with Python alone and `install`.")
    install: list[Text] = Field(
        default=[],
        description="What pip installs on top of the image: requirements, or wheels by their path.",
        examples=[["tonnage[serve]"], ["dist/tonnage-0.1.0-py3-none-any.whl"]],
    )
    models: Text = Field(
        description="The folder of models. For a cluster `pvc:NAME` (a PersistentVolumeClaim) or `node:/PATH` (a folder of "
        "the nodes). `image:/PATH`: it is in the image.",
        examples=["models", "pvc:models", "node:/srv/models", "image:/models"],
    )
    instances: int = Field(default=1, ge=1, le=1000, description="How many; more than one in a cluster only.")
    restarts: int = Field(
        default=10, ge=0, description="How often a container that failed is started again; a cluster does it for ever."
    )
    start_seconds: float = Field(
        default=300.0, ge=1, le=86400, description="How long it may take until all models are ready."
    )
    resources: ResourcesSection = Field(default=ResourcesSection(), description="Of each instance.")
    ports: PortsSection = Field(default=PortsSection(), description="Where clients find it.")
    server: ServerSection = Field(default=ServerSection(), description="Options of the server.")
    autoscale: AutoscaleSection | None = Field(
        default=None, description="In a cluster: more instances when requests wait."
    )


SECTIONS = (ServiceFile, ResourcesSection, PortsSection, TlsSection, ServerSection, AutoscaleSection)
