"""The engine `kubernetes`: a Job or a Deployment in a cluster, strictly valid before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from tonnage.engines.base import EngineOptions, Job, JobId, JobStatus, Manifest, own_options
from tonnage.engines.kubernetes_checks import check, parse_quantity
from tonnage.engines.kubernetes_client import Cluster, Forbidden
from tonnage.engines.kubernetes_manifest import INSTANCE, MANAGED_BY, OWNER, KubernetesOptions, render
from tonnage.engines.kubernetes_states import CANCELLED, deployment_status, is_cancelled, job_status
from tonnage.engines.names import check_environment, check_labels, check_name
from tonnage.engines.ports import check_ports
from tonnage.engines.service import SERVICE_LABEL
from tonnage.errors import DoesNotFit, NotFound, TonnageError, UsageError
from tonnage.profile.recorder import PREFIX
from tonnage.units import format_bytes

if TYPE_CHECKING:
    from lightkube import Client

Document = dict[str, Any]

_KINDS = ("Job", "Deployment")
_COMPANIONS = ("Service", "ResourceClaimTemplate", "ConfigMap")
_OF_SERVICES = ("HorizontalPodAutoscaler", "PodDisruptionBudget")


class KubernetesEngine:
    """A cluster, as the user's own configuration (KUBECONFIG, or the pod's account) names it."""

    name: ClassVar[str] = "kubernetes"
    Options: ClassVar[type[EngineOptions]] = KubernetesOptions
    restarts_jobs: ClassVar[bool] = True

    def __init__(self, client: Client | None = None) -> None:
        self.cluster = Cluster(client)

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        chosen = own_options(options, KubernetesOptions)
        _check_job(job)
        documents = render(job, chosen)
        check(documents)
        text = yaml.dump_all(documents, Dumper=_Readable, sort_keys=False, width=1000)
        job_id = JobId(f"{chosen.namespace}/{job.name}")
        return Manifest(engine=self.name, name=job.name, text=text, job=job, options=chosen, job_id=job_id)

    def submit(self, manifest: Manifest) -> JobId:
        """What was shown is what is sent."""
        options = own_options(manifest.options, KubernetesOptions)
        if options.check_nodes:
            self._check_nodes(manifest.job, options)
        made: list[Document] = []
        try:
            for document in yaml.safe_load_all(manifest.text):
                self.cluster.create(document)
                made.append(document)
        except BaseException:
            for document in reversed(made):
                self.cluster.delete(document["kind"], options.namespace, document["metadata"]["name"])
            raise
        return manifest.job_id

    def reconfigure(self, manifest: Manifest) -> None:
        """Other files in the ConfigMap of a service; nodes hand them on to its pods in about a minute."""
        for document in yaml.safe_load_all(manifest.text):
            if document["kind"] == "ConfigMap":
                metadata, change = document["metadata"], {"data": document["data"]}
                self.cluster.patch("ConfigMap", metadata["namespace"], metadata["name"], change)

    def state(self, job_id: JobId) -> JobStatus:
        return self._status(self._find(job_id))

    def cancel(self, job_id: JobId) -> None:
        """The pods go, the object stays and says what happened; `remove` deletes it."""
        document = self._find(job_id)
        if self._status(document).state.is_over:
            return
        stop = {"suspend": True} if document["kind"] == "Job" else {"replicas": 0}
        change = {"metadata": {"annotations": {CANCELLED: "true"}}, "spec": stop}
        self.cluster.patch(document["kind"], *_split(job_id), change)

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        document = self._find(job_id)
        return self._lines(document, follow)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        for kind in _KINDS:
            for document in self.cluster.list(kind, "*", {MANAGED_BY: OWNER}):
                document["kind"] = kind
                metadata = document["metadata"]
                yield JobId(f"{metadata['namespace']}/{metadata['name']}"), self._status(document), _labels(metadata)

    def remove(self, job_id: JobId) -> None:
        document = self._find(job_id)
        if not self._status(document).state.is_over:
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id.rpartition('/')[2]}")
        of_services = _OF_SERVICES if SERVICE_LABEL in (document["metadata"].get("labels") or {}) else ()
        for kind in (*of_services, document["kind"], *_COMPANIONS):
            self.cluster.delete(kind, *_split(job_id))

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _find(self, job_id: JobId) -> Document:
        for kind in _KINDS:
            try:
                return self.cluster.get(kind, *_split(job_id)) | {"kind": kind}
            except NotFound:
                continue
        raise NotFound(f"the cluster has no job {job_id!r}", "`tonnage status` lists all")

    def _pods(self, document: Document) -> list[Document]:
        metadata = document["metadata"]
        return self.cluster.list("Pod", metadata["namespace"], {INSTANCE: metadata["name"]})

    def _status(self, document: Document) -> JobStatus:
        pods = [] if is_cancelled(document) else self._pods(document)
        return (job_status if document["kind"] == "Job" else deployment_status)(document, pods)

    def _lines(self, document: Document, follow: bool) -> Iterator[str]:
        pods = self._pods(document)
        for pod in pods:
            prefix = f"{pod['metadata']['name']}: " if len(pods) > 1 else ""
            for line in self.cluster.log(pod["metadata"]["namespace"], pod["metadata"]["name"], follow=follow):
                # A record and the empty line before it are told from other lines by how they begin.
                yield line if line.startswith(PREFIX) or not line else prefix + line

    def _check_nodes(self, job: Job, options: KubernetesOptions) -> None:
        """Against what the nodes have when they are empty. Who may not look at nodes learns it from the pod's state."""
        try:
            nodes = self.cluster.list("Node", None, {})
        except (Forbidden, NotFound):
            return
        if nodes and not any(_holds(node, job, options) for node in nodes):
            raise _too_large(nodes, job, options)


class _Readable(yaml.SafeDumper):
    """Texts of several lines as they are, and nothing written as a reference to something above."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as yaml calls it
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _represent_text)


def _check_job(job: Job) -> None:
    check_name(job.name)
    check_labels(job.labels)
    check_environment(job.environment)
    check_ports(job.ports)
    if not job.image:
        raise UsageError("a pod needs an image", "name one with --image")
    if len(job.placements) > 1:
        raise UsageError(
            f"a gang over {len(job.placements)} nodes is not started on Kubernetes", "choose --engine slurm or ray"
        )
    if job.resources.numa_node is not None:
        raise UsageError(
            "NUMA nodes cannot be chosen on Kubernetes", "the kubelet's topology manager does it for whole cores"
        )


def _split(job_id: str) -> tuple[str, str]:
    namespace, slash, name = job_id.partition("/")
    return (namespace, name) if slash else ("default", job_id)


def _labels(metadata: Document) -> dict[str, str]:
    """As they were asked for, whether they became labels or annotations."""
    found = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
    ours = (INSTANCE, MANAGED_BY, CANCELLED)
    return {key: value for key, value in found.items() if key not in ours and "kubernetes.io/" not in key}


def _wanted(job: Job, options: KubernetesOptions) -> dict[str, float]:
    wanted = {"cpu": job.resources.cpu_cores, "memory": float(job.resources.memory_bytes)}
    if job.resources.gpu_count and not options.dra:
        wanted[options.gpu_resource] = float(job.resources.gpu_count)
    return wanted


def _has(node: Document, resource: str) -> float:
    return float(parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))


def _holds(node: Document, job: Job, options: KubernetesOptions) -> bool:
    return all(_has(node, resource) >= amount for resource, amount in _wanted(job, options).items())


def _too_large(nodes: list[Document], job: Job, options: KubernetesOptions) -> TonnageError:
    """Which of the resources, and by how much; or that no node has all of them together."""
    for resource, amount in _wanted(job, options).items():
        largest = max(_has(node, resource) for node in nodes)
        if largest < amount:
            shown = [format_bytes(value) if resource == "memory" else f"{value:g}" for value in (amount, largest)]
            missing = format_bytes(amount - largest) if resource == "memory" else f"{amount - largest:g}"
            return DoesNotFit(
                f"{shown[0]} of {resource} are wanted, the largest node has {shown[1]}: {missing} too little",
                "a cluster that adds nodes by itself: --option check_nodes=false",
            )
    return DoesNotFit(
        "no node has enough of everything that is wanted", "`kubectl describe nodes` shows what they have"
    )
