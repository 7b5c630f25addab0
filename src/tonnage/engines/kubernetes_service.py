"""A service in a cluster: probes, the files that it follows, how it is replaced, and how many there shall be. Pure."""

from __future__ import annotations

from math import ceil
from typing import Any

from tonnage.engines.base import Job
from tonnage.engines.service import Autoscale, Folder, ServiceTraits
from tonnage.errors import UsageError

Document = dict[str, Any]

_START_PERIOD, _LIVE_PERIOD, _READY_PERIOD = 2, 10, 2  # seconds between two questions
# A pod that ends is still sent new clients until all nodes know; its server would refuse them. Part of the grace period.
_LEAVE_SECONDS = 5
_DOWN_SECONDS = 300  # that fewer instances must have been enough, before one is given up


def with_service(documents: list[Document], job: Job, service: ServiceTraits, metadata: Document) -> list[Document]:
    """The Deployment and the Service of a job, completed, with what else belongs to them."""
    deployment, front = documents
    _complete(deployment, job, service)
    _name_ports(deployment, front, service)
    least = service.autoscale.least if service.autoscale else job.replicas
    deployment["spec"]["replicas"] = least
    found = [_config_map(folder, metadata) for folder in service.folders if folder.files]
    found += [deployment, front]
    if least > 1:
        found.append(_disruption_budget(deployment, metadata))
    if service.autoscale is not None:
        found.append(_autoscaler(service.autoscale, metadata))
    return found


def _complete(deployment: Document, job: Job, service: ServiceTraits) -> None:
    spec = deployment["spec"]["template"]["spec"]
    container = spec["containers"][0]
    container |= _probes(service) | {"lifecycle": {"preStop": {"sleep": {"seconds": _LEAVE_SECONDS}}}}
    grace = spec["terminationGracePeriodSeconds"]
    spec["terminationGracePeriodSeconds"] = max(grace, service.grace_seconds)
    for number, folder in enumerate(service.folders):
        spec["volumes"].append({"name": f"folder-{number}", **_volume(folder, job.name)})
        container["volumeMounts"].append(
            {"name": f"folder-{number}", "mountPath": folder.target, "readOnly": True}
        )  # the folder as a whole: files that are mounted by a sub-path never change
    if not job.resources.gpu_count:  # where one more costs little, there is never one less
        deployment["spec"]["strategy"]["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 1}
    _announce_metrics(deployment["spec"]["template"]["metadata"], service)


def _announce_metrics(metadata: Document, service: ServiceTraits) -> None:
    """As the usual configuration of Prometheus looks for them."""
    if service.metrics_port:
        scheme = "https" if service.probes.is_https else "http"
        told = {"scrape": "true", "scheme": scheme, "port": str(service.metrics_port), "path": "/metrics"}
        marks = {f"prometheus.io/{key}": value for key, value in told.items()}
        metadata["annotations"] = metadata.get("annotations", {}) | marks


def _probes(service: ServiceTraits) -> Document:
    """It must live soon, since ports are open before models are loaded; it is ready when they all are."""
    probes = service.probes
    start = max(ceil(probes.start_seconds / _START_PERIOD), 1)
    return {
        "startupProbe": _probe(service, probes.live_path, _START_PERIOD, start),
        "livenessProbe": _probe(service, probes.live_path, _LIVE_PERIOD, 3),
        "readinessProbe": _probe(service, probes.ready_path, _READY_PERIOD, 2),
    }


def _probe(service: ServiceTraits, path: str, period: int, failures: int) -> Document:
    scheme = "HTTPS" if service.probes.is_https else "HTTP"
    return {
        "httpGet": {"path": path, "port": service.probes.port, "scheme": scheme},
        "periodSeconds": period,
        "timeoutSeconds": 5 if period == _LIVE_PERIOD else 2,
        "failureThreshold": failures,
    }


def _volume(folder: Folder, name: str) -> Document:
    return {"secret": {"secretName": folder.secret}} if folder.secret else {"configMap": {"name": name}}


def _name_ports(deployment: Document, front: Document, service: ServiceTraits) -> None:
    for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]:
        port["name"] = service.port_names[port["containerPort"]]
    for port in front["spec"]["ports"]:
        port["name"] = service.port_names[port["targetPort"]]


def _config_map(folder: Folder, metadata: Document) -> Document:
    """Not immutable, unlike that of a program: the service reads it again when it changes."""
    if folder.is_private:
        raise UsageError(
            f"what belongs to {folder.target} is secret, and is not written into a ConfigMap", "name a Secret"
        )
    data = {name: content.decode() for name, content in folder.files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _disruption_budget(deployment: Document, metadata: Document) -> Document:
    """A node that is emptied takes one instance after the other."""
    spec = {"maxUnavailable": 1, "selector": deployment["spec"]["selector"]}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _autoscaler(scale: Autoscale, metadata: Document) -> Document:
    target = {"type": "AverageValue", "averageValue": f"{scale.target_thousandths}m"}
    metric = {"type": "Pods", "pods": {"metric": {"name": scale.metric}, "target": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"]},
        "minReplicas": scale.least,
        "maxReplicas": scale.most,
        "metrics": [metric],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": _DOWN_SECONDS}},
    }
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
