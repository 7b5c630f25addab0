"""A job as Kubernetes objects: Job, or Deployment and Service, and what belongs to them. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from tonnage.engines.base import EngineOptions, Job, Mount, Resources, Source
from tonnage.engines.containerfile import FOLDER
from tonnage.engines.kubernetes_service import with_service
from tonnage.engines.names import is_label_value
from tonnage.engines.service import ServiceTraits
from tonnage.errors import UsageError

Document = dict[str, Any]

INSTANCE, MANAGED_BY, OWNER = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "tonnage"
_CLAIM = "gpu"  # the name of the DRA request inside the pod
_MANY_BYTES = 1000 * 1024  # a ConfigMap holds 1 MiB, its names and keys included


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_RESTARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions(EngineOptions):
    """Where in the cluster, and how GPUs are asked for."""

    namespace: str = "default"
    user: int = 65534  # nobody
    gpu_resource: str = "nvidia.com/gpu"
    product_label: str = "nvidia.com/gpu.product"  # as NVIDIA's feature discovery labels nodes
    # Of nodes that say their type, such as tonnage.io/node-type; a cluster without such nodes would never start the job.
    node_type_label: str = ""
    node_name_label: str = "kubernetes.io/hostname"  # by which a plan's nodes are found
    queue: str = ""  # of Kueue, which then decides when the job starts, and on which flavor
    dra: bool = False  # a ResourceClaimTemplate instead of the device plugin's resource
    device_class: str = "gpu.nvidia.com"
    dra_driver: str = "gpu.nvidia.com"  # whose attributes devices have; classes can be given other names
    runtime_class: str = ""
    service_account: str = ""
    pull_secret: str = ""
    priority_class: str = ""
    tmp_bytes: int = 1 << 30
    grace_seconds: int = 30
    check_nodes: bool = True  # refuse what no node could hold; not for clusters that add nodes by themselves


def render(job: Job, options: KubernetesOptions) -> list[Document]:
    """In the order in which they are created: what others refer to comes first."""
    if job.service is not None:
        return _watched_service(job, job.service, options)
    documents = []
    if job.source is not None:
        documents.append(_config_map(job, job.source, options))
    if options.dra and job.resources.gpu_count:
        documents.append(_claim_template(job, options))
    if job.replicas:
        documents.append(_deployment(job, options))
        documents += [_service(job, options)] if job.ports else []
    else:
        documents.append(_batch_job(job, options))
    return documents


def _watched_service(job: Job, service: ServiceTraits, options: KubernetesOptions) -> list[Document]:
    if job.source is not None:
        raise UsageError(
            "nothing can be installed into an image on Kubernetes", "build and push an image that has it, and name that"
        )
    claims = [_claim_template(job, options)] if options.dra and job.resources.gpu_count else []
    documents = [_deployment(job, options), _service(job, options)]
    return claims + with_service(documents, job, service, _metadata(job, options))


def cpu_quantity(cores: float) -> str:
    """Whole cores as they are, others in thousandths, rounded up: never less than asked for."""
    thousandths = -int(-cores * 1000 // 1)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def bytes_quantity(count: int) -> str:
    """In the largest unit that is exact."""
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count % size == 0 and count:
            return f"{count // size}{unit}"
    return str(count)


# -- the objects ----------------------------------------------------------------------------------------------------------


def _metadata(job: Job, options: KubernetesOptions) -> Document:
    labels = {key: value for key, value in job.labels.items() if is_label_value(value)}
    annotations = {key: value for key, value in job.labels.items() if key not in labels}
    metadata: Document = {"name": job.name, "namespace": options.namespace, "labels": labels | _own_labels(job)}
    return metadata | ({"annotations": annotations} if annotations else {})


def _own_labels(job: Job) -> dict[str, str]:
    return {INSTANCE: job.name, MANAGED_BY: OWNER}


def _batch_job(job: Job, options: KubernetesOptions) -> Document:
    template = _pod_template(job, options) | {}
    template["spec"]["restartPolicy"] = "Never"
    tries = _RESTARTS if job.requeue else 0
    spec = {"backoffLimit": tries, "completions": 1, "parallelism": 1, "template": template}
    metadata = _metadata(job, options)
    if options.queue:
        metadata["labels"][QUEUE_LABEL] = options.queue
        spec["suspend"] = True  # until Kueue lets it start
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _deployment(job: Job, options: KubernetesOptions) -> Document:
    template = _pod_template(job, options)
    if job.ports:
        template["spec"]["containers"][0]["readinessProbe"] = {
            "tcpSocket": {"port": job.ports[0][1]}, "periodSeconds": 2, "failureThreshold": 3,
        }  # fmt: skip
    spec = {
        "replicas": job.replicas,
        "selector": {"matchLabels": {INSTANCE: job.name}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},  # GPUs are scarce
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(job, options), "spec": spec}


def _service(job: Job, options: KubernetesOptions) -> Document:
    ports = [
        {"name": f"port-{host_port}", "port": host_port, "targetPort": job_port, "protocol": "TCP"}
        for host_port, job_port in job.ports
    ]
    spec = {"type": "ClusterIP", "selector": {INSTANCE: job.name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, options), "spec": spec}


def _config_map(job: Job, source: Source, options: KubernetesOptions) -> Document:
    """The program's files: so no registry is needed for a script on a public image."""
    if source.requirements:
        raise UsageError(
            "requirements cannot be installed into an image on Kubernetes", "build and push an image that has them"
        )
    size = sum(map(len, source.files.values()))
    if size > _MANY_BYTES:
        raise UsageError(
            f"the program's files have {size:,} bytes, a ConfigMap holds {_MANY_BYTES:,}",
            "build an image that has them",
        )
    text, binary = {}, {}
    for key, content in zip(_keys(source), (source.files[name] for name in sorted(source.files)), strict=True):
        try:
            text[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode()
    document: Document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, options),
        "immutable": True,
    }
    return document | ({"data": text} if text else {}) | ({"binaryData": binary} if binary else {})


def _keys(source: Source) -> list[str]:
    """Keys of a ConfigMap have no slashes."""
    return [f"file-{number}" for number in range(len(source.files))]


def _claim_template(job: Job, options: KubernetesOptions) -> Document:
    """Dynamic Resource Allocation, resource.k8s.io/v1 (Kubernetes 1.34 and newer)."""
    exactly: Document = {
        "deviceClassName": options.device_class,
        "allocationMode": "ExactCount",
        "count": job.resources.gpu_count,
    }
    if job.resources.gpu:
        name = _driver_name(job.resources.gpu)
        expression = f'device.attributes["{options.dra_driver}"].productName == "{name}"'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    spec = {"spec": {"devices": {"requests": [{"name": _CLAIM, "exactly": exactly}]}}}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": _metadata(job, options),
        "spec": spec,
    }  # fmt: skip


# -- the pod --------------------------------------------------------------------------------------------------------------


def _pod_template(job: Job, options: KubernetesOptions) -> Document:
    metadata = {key: value for key, value in _metadata(job, options).items() if key in ("labels", "annotations")}
    spec: Document = {
        "automountServiceAccountToken": False,  # a training program has no business with the API
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": options.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": options.user, "runAsGroup": options.user, "fsGroup": options.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, options)],
        "volumes": _volumes(job, options),
    }  # fmt: skip
    affinity = _affinity(job, options)
    optional = {
        "affinity": affinity,
        "tolerations": [{"key": options.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}]
        if job.resources.gpu_count else [],
        "resourceClaims": [{"name": _CLAIM, "resourceClaimTemplateName": job.name}]
        if options.dra and job.resources.gpu_count else [],
        "runtimeClassName": options.runtime_class,
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "imagePullSecrets": [{"name": options.pull_secret}] if options.pull_secret else [],
    }  # fmt: skip
    return {"metadata": metadata, "spec": spec | {key: value for key, value in optional.items() if value}}


def _container(job: Job, options: KubernetesOptions) -> Document:
    container: Document = {
        "name": "main",
        "image": job.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(job.command),
        "env": [{"name": key, "value": value} for key, value in sorted({"HOME": "/tmp", **job.environment}.items())],
        "resources": _resources(job.resources, options),
        "securityContext": {
            "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _volume_mounts(job),
    }  # fmt: skip
    if job.workdir:
        container["workingDir"] = job.workdir
    if job.ports:
        container["ports"] = [{"containerPort": job_port, "protocol": "TCP"} for _, job_port in job.ports]
    return container


def _resources(resources: Resources, options: KubernetesOptions) -> Document:
    """Requests equal limits: the pod is of the class Guaranteed and is the last to be evicted."""
    amounts = {"cpu": cpu_quantity(resources.cpu_cores), "memory": bytes_quantity(resources.memory_bytes)}
    if resources.gpu_count and not options.dra:
        amounts[options.gpu_resource] = str(resources.gpu_count)
    document: Document = {"requests": amounts, "limits": dict(amounts)}
    if resources.gpu_count and options.dra:
        document["claims"] = [{"name": _CLAIM}]
    return document


def _volumes(job: Job, options: KubernetesOptions) -> list[Document]:
    volumes: list[Document] = [{"name": "tmp", "emptyDir": {"sizeLimit": bytes_quantity(options.tmp_bytes)}}]
    if job.resources.shared_memory_bytes is not None:
        limit = bytes_quantity(job.resources.shared_memory_bytes)
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": limit}})
    if job.source is not None:
        names = zip(_keys(job.source), sorted(job.source.files), strict=True)
        items = [{"key": key, "path": path} for key, path in names]
        volumes.append({"name": "program", "configMap": {"name": job.name, "items": items}})
    for number, mount in enumerate(job.mounts):
        volumes.append({"name": f"mount-{number}", **_volume(mount)})
    return volumes


def _volume(mount: Mount) -> Document:
    kind, _, place = mount.source.partition(":")
    if kind == "node" and place:
        return {"hostPath": {"path": place, "type": "Directory"}}
    return {"persistentVolumeClaim": {"claimName": _claim_name(mount), "readOnly": mount.read_only}}


def _volume_mounts(job: Job) -> list[Document]:
    mounts: list[Document] = [{"name": "tmp", "mountPath": "/tmp"}]
    if job.resources.shared_memory_bytes is not None:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    if job.source is not None:
        mounts.append({"name": "program", "mountPath": FOLDER, "readOnly": True})
    for number, mount in enumerate(job.mounts):
        mounts.append({"name": f"mount-{number}", "mountPath": mount.target, "readOnly": mount.read_only})
    return mounts


def _claim_name(mount: Mount) -> str:
    kind, _, name = mount.source.partition(":")
    if kind != "pvc" or not name:
        raise UsageError(
            f"{mount.source} cannot be mounted: a folder of this machine is not there on the nodes",
            f"name a PersistentVolumeClaim: --mount pvc:NAME:{mount.target}",
        )
    return name


def _affinity(job: Job, options: KubernetesOptions) -> Document:
    wanted: dict[str, str] = {}
    if job.node_type and options.node_type_label:
        wanted[options.node_type_label] = job.node_type
    if job.resources.gpu and job.resources.gpu_count and not options.dra:
        wanted.setdefault(options.product_label, _driver_name(job.resources.gpu).replace(" ", "-"))
    # Kueue chooses among flavors, which the model tells apart; without it the plan's own node is meant.
    if job.placements and job.placements[0].node and not options.queue:
        wanted[options.node_name_label] = job.placements[0].node
    if not wanted:
        return {}
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(wanted.items())]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _driver_name(gpu: str) -> str:
    """The driver's name is what feature discovery and the DRA driver publish."""
    from tonnage.hardware.catalogue import find_gpu

    return find_gpu(gpu).driver_name
