"""What a schema does not see: names, labels, quantities, and whether the objects fit together. Pure.

`plan` runs these on everything it renders, so that nothing reaches a cluster that it would refuse or, worse, accept
and never start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tonnage.engines.names import is_label_key, is_label_value
from tonnage.errors import UsageError

Document = dict[str, Any]

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_.\-][A-Za-z0-9_.\-]*")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_UNITS: dict[str, Fraction | int] = {
    "m": Fraction(1, 1000), "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
_RESTART = {"Job": ("Never", "OnFailure"), "Deployment": ("Always",)}


def check(documents: list[Document]) -> None:
    """Raises `UsageError` with the first fault."""
    fault = next(faults(documents), None)
    if fault:
        raise UsageError(f"Kubernetes would not take this: {fault}")


def faults(documents: list[Document]) -> Iterator[str]:
    """Every fault as half a sentence that names the object and the field."""
    for document in documents:
        where = f"{document['kind']} {document['metadata'].get('name')!r}"
        yield from (f"{where}: {fault}" for fault in _faults_of(document))
    yield from _loose_ends(documents)


def parse_quantity(text: object) -> Fraction:
    """`500m`, `2`, `1Gi`; `ValueError` for anything else. Numbers without quotes are allowed as well."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    return Fraction(match[1]) * _UNITS[match[2] or ""]


def _faults_of(document: Document) -> Iterator[str]:
    metadata = document["metadata"]
    pattern = _SERVICE_NAME if document["kind"] == "Service" else _DNS_LABEL
    if not pattern.fullmatch(str(metadata.get("name", ""))):
        yield f"the name {metadata.get('name')!r} is no DNS label"
    if not _DNS_LABEL.fullmatch(str(metadata.get("namespace", ""))):
        yield f"the namespace {metadata.get('namespace')!r} is no DNS label"
    yield from _label_faults(metadata)
    template = document.get("spec", {}).get("template")
    if template is not None:
        yield from _label_faults(template["metadata"])
        yield from _selector_faults(document, template)
        yield from _pod_faults(document["kind"], template["spec"])
    if document["kind"] == "Service":
        yield from _service_faults(document["spec"])
    for key in (*document.get("data", {}), *document.get("binaryData", {})):
        if not _CONFIG_KEY.fullmatch(key):
            yield f"the key {key!r} has other characters than letters, digits, dots and dashes"


def _label_faults(metadata: Document) -> Iterator[str]:
    for key, value in metadata.get("labels", {}).items():
        if not is_label_key(key):
            yield f"{key!r} is no name of a label"
        if not is_label_value(value):
            yield f"the label {key} cannot be {value!r}: at most 63 letters, digits, dots, dashes and underscores"
    for key in metadata.get("annotations", {}):
        if not is_label_key(key):
            yield f"{key!r} is no name of an annotation"


def _selector_faults(document: Document, template: Document) -> Iterator[str]:
    """A Deployment whose selector misses its own pods makes new ones for ever."""
    selector = document["spec"].get("selector", {}).get("matchLabels")
    if document["kind"] == "Deployment" and not selector:
        yield "it has no selector"
    labels = template["metadata"].get("labels", {})
    for key, value in (selector or {}).items():
        if labels.get(key) != value:
            yield f"the selector asks for {key}={value}, its pods have {labels.get(key)!r}"


def _pod_faults(kind: str, spec: Document) -> Iterator[str]:
    policy = spec.get("restartPolicy", "Always")
    if policy not in _RESTART.get(kind, (policy,)):
        yield f"restartPolicy {policy} is not for a {kind}"
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    if len(set(volumes)) < len(volumes):
        yield "two volumes have the same name"
    for volume in spec.get("volumes", []):
        if "sizeLimit" in volume.get("emptyDir", {}):
            yield from _quantity_faults(f"sizeLimit of {volume['name']}", volume["emptyDir"]["sizeLimit"])
    claims = {claim["name"] for claim in spec.get("resourceClaims", [])}
    for container in spec["containers"]:
        yield from _container_faults(container, set(volumes), claims)
    yield from _affinity_faults(spec.get("affinity", {}))


def _container_faults(container: Document, volumes: set[str], claims: set[str]) -> Iterator[str]:
    if not container.get("image") or re.search(r"\s", container["image"]):
        yield f"{container.get('image')!r} is no image"
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"{mount['mountPath']} is mounted from {mount['name']!r}, which is no volume of the pod"
        if not mount["mountPath"].startswith("/") or ":" in mount["mountPath"]:
            yield f"{mount['mountPath']!r} cannot be mounted to: it must be a full path without a colon"
    paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
    if len(set(paths)) < len(paths):
        yield "two volumes are mounted at the same path"
    for variable in container.get("env", []):
        if not _VARIABLE.fullmatch(variable["name"]):
            yield f"{variable['name']!r} is no environment variable"
    ports = [port["containerPort"] for port in container.get("ports", [])]
    yield from _port_faults(ports)
    yield from _probe_faults(container, ports)
    yield from _resource_faults(container.get("resources", {}), claims)


def _probe_faults(container: Document, ports: list[int]) -> Iterator[str]:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        for way in ("httpGet", "tcpSocket"):
            port = container.get(name, {}).get(way, {}).get("port")
            if port is not None and port not in ports:
                yield f"{name} asks at port {port}, which the container does not open"


def _resource_faults(resources: Document, claims: set[str]) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, amount in (*requests.items(), *limits.items()):
        yield from _quantity_faults(name, amount)
    if requests != limits:
        yield "requests and limits differ"
    for name, amount in limits.items():
        if "/" in name and not str(amount).isdigit():
            yield f"{name} is counted in whole numbers, not {amount!r}"
        if "/" in name and not is_label_key(name):
            yield f"{name!r} is no name of a resource"
    for claim in resources.get("claims", []):
        if claim["name"] not in claims:
            yield f"the claim {claim['name']!r} is not one of the pod's"


def _quantity_faults(name: str, amount: object) -> Iterator[str]:
    try:
        if parse_quantity(amount) <= 0:
            yield f"{name} must be more than {amount}"
    except ValueError as error:
        yield f"{name}: {error}"


def _port_faults(ports: list[int]) -> Iterator[str]:
    if len(set(ports)) < len(ports):
        yield "a port is named twice"
    yield from (f"{port} is no port" for port in ports if not 0 < port < 65536)


def _service_faults(spec: Document) -> Iterator[str]:
    yield from _port_faults([port["port"] for port in spec["ports"]])
    for port in spec["ports"]:
        if not _PORT_NAME.fullmatch(port.get("name", "x")):
            yield f"{port['name']!r} is no name of a port: at most 15 small letters, digits and dashes"


def _affinity_faults(affinity: Document) -> Iterator[str]:
    required = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", []):
        for expression in term.get("matchExpressions", []):
            if not is_label_key(expression["key"]):
                yield f"{expression['key']!r} is no name of a node's label"
            for value in expression.get("values", []):
                if not is_label_value(value):
                    yield f"no node can have the label {expression['key']}={value}"


def _loose_ends(documents: list[Document]) -> Iterator[str]:
    """References from one object to another."""
    names = {(document["kind"], document["metadata"].get("name")) for document in documents}
    if len(names) < len(documents):
        yield "two objects of one kind have the same name"
    templates = [document["spec"]["template"] for document in documents if "template" in document.get("spec", {})]
    for template in templates:
        yield from _pod_loose_ends(template["spec"], names, documents)
    for service in (document for document in documents if document["kind"] == "Service"):
        yield from _service_loose_ends(service, templates)
    for document in documents:
        if document["kind"] == "HorizontalPodAutoscaler":
            yield from _autoscaler_loose_ends(document["spec"], names)
        elif document["kind"] == "PodDisruptionBudget":
            yield from _budget_loose_ends(document, templates)


def _autoscaler_loose_ends(spec: Document, names: set[tuple[str, Any]]) -> Iterator[str]:
    target = spec["scaleTargetRef"]
    if (target["kind"], target["name"]) not in names:
        yield f"there is no {target['kind']} {target['name']!r} to scale"
    if spec["minReplicas"] > spec["maxReplicas"]:
        yield f"at least {spec['minReplicas']} instances are more than at most {spec['maxReplicas']}"
    for metric in spec["metrics"]:
        yield from _quantity_faults("averageValue", metric["pods"]["target"]["averageValue"])


def _budget_loose_ends(budget: Document, templates: list[Document]) -> Iterator[str]:
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    if not any(wanted <= template["metadata"].get("labels", {}).items() for template in templates):
        yield f"no pod is behind the PodDisruptionBudget {budget['metadata'].get('name')!r}"


def _pod_loose_ends(spec: Document, names: set[tuple[str, Any]], documents: list[Document]) -> Iterator[str]:
    for claim in spec.get("resourceClaims", []):
        if ("ResourceClaimTemplate", claim.get("resourceClaimTemplateName")) not in names:
            yield f"there is no ResourceClaimTemplate {claim.get('resourceClaimTemplateName')!r}"
    for config in (volume["configMap"] for volume in spec.get("volumes", []) if "configMap" in volume):
        found = [d for d in documents if d["kind"] == "ConfigMap" and d["metadata"].get("name") == config["name"]]
        keys = {key for document in found for key in (*document.get("data", {}), *document.get("binaryData", {}))}
        missing = [item["key"] for item in config.get("items", []) if item["key"] not in keys]
        if not found or missing:
            yield f"the ConfigMap {config['name']!r} has no {missing or 'object'}"


def _service_loose_ends(service: Document, templates: list[Document]) -> Iterator[str]:
    selector = service["spec"].get("selector", {})
    behind = [t for t in templates if selector.items() <= t["metadata"].get("labels", {}).items()]
    name = service["metadata"].get("name")
    if not selector or not behind:
        yield f"no pod is behind the Service {name!r}"
    open_ports = {p["containerPort"] for t in behind for c in t["spec"]["containers"] for p in c.get("ports", [])}
    for port in service["spec"]["ports"]:
        if behind and port.get("targetPort", port["port"]) not in open_ports:
            yield f"the Service {name!r} leads to port {port.get('targetPort', port['port'])}, which no container opens"
