"""The cluster's API by way of lightkube: plain documents in and out, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tonnage.errors import MissingDependency, NotFound, TonnageError, Unreachable, UsageError

if TYPE_CHECKING:
    from lightkube import Client

Document = dict[str, Any]

_ANSWER_SECONDS = 20.0


class Forbidden(Unreachable):
    """The cluster answers, but not to us."""


class Cluster:
    """A connection that is opened when the first question is asked."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client

    def create(self, document: Document) -> None:
        from lightkube.codecs import from_dict

        with self._errors(document["metadata"]["name"]) as client:
            client.create(from_dict(document))

    def get(self, kind: str, namespace: str, name: str) -> Document:
        with self._errors(name) as client:
            document: Document = client.get(_resource(kind), name, namespace=namespace).to_dict()
            return document

    def list(self, kind: str, namespace: str | None, labels: dict[str, str]) -> list[Document]:
        """Filtered here once more: not everything that speaks this API knows selectors."""
        asked: dict[str, Any] = {"labels": labels} if labels else {}
        if namespace is not None:
            asked["namespace"] = namespace
        with self._errors(kind) as client:
            found = [item.to_dict() for item in client.list(_resource(kind), **asked)]
        return [item for item in found if labels.items() <= (item["metadata"].get("labels") or {}).items()]

    def patch(self, kind: str, namespace: str, name: str, change: Document) -> None:
        from lightkube.types import PatchType

        with self._errors(name) as client:
            client.patch(_resource(kind), name, change, namespace=namespace, patch_type=PatchType.MERGE)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """With all that it made; what is not there is deleted already."""
        from lightkube.types import CascadeType

        try:
            with self._errors(name) as client:
                client.delete(_resource(kind), name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except NotFound:
            pass

    def log(self, namespace: str, pod: str, *, follow: bool) -> Iterator[str]:
        with self._errors(pod) as client:
            yield from client.log(pod, namespace=namespace, follow=follow, newlines=False)

    @contextmanager
    def _errors(self, name: str) -> Iterator[Client]:
        try:
            import httpx2
            from lightkube import ApiError
            from lightkube.core.exceptions import ConfigError, LoadResourceError
        except ImportError:
            raise MissingDependency("Kubernetes needs lightkube", "pip install 'tonnage[kubernetes]'") from None
        try:
            yield self._connect()
        except ApiError as error:
            raise _translate(error.status.code or 0, error.status.message or "", name) from None
        except ConfigError as error:
            raise Unreachable(f"no cluster is known: {error}", "KUBECONFIG names the file that describes it") from None
        except LoadResourceError as error:
            raise UsageError(f"the cluster does not know an object of {name}: {error}") from None
        except httpx2.HTTPStatusError as error:
            # Without a word in JSON: a proxy, or an API that this cluster does not have, such as that of DRA before 1.34.
            raise _translate(error.response.status_code, "it knows no such objects", name) from None
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"the cluster does not answer: {error}", "`kubectl cluster-info` asks it as well"
            ) from None

    def _connect(self) -> Client:
        if self._client is None:
            import httpx2
            from lightkube import Client

            self._client = Client(timeout=httpx2.Timeout(_ANSWER_SECONDS, read=None), field_manager="tonnage")
        return self._client


def _translate(code: int, message: str, name: str) -> TonnageError:
    message = message or "no reason was given"
    if code == 404:
        return NotFound(f"the cluster has no {name!r}: {message}")
    if code == 409:
        return UsageError(f"the cluster has a {name!r} already", "choose another --name")
    if code in (401, 403):
        return Forbidden(f"the cluster refuses: {message}", "ask its administrator for the right to do this")
    if code in (400, 422):
        return UsageError(f"the cluster does not take {name!r}: {message}")
    return Unreachable(f"the cluster answers {code}: {message}")


def _resource(kind: str) -> Any:
    from lightkube.resources import apps_v1, autoscaling_v2, batch_v1, core_v1, policy_v1, resource_v1

    places = {
        "Job": batch_v1, "Deployment": apps_v1, "Service": core_v1, "ConfigMap": core_v1, "Pod": core_v1,
        "Node": core_v1, "ResourceClaimTemplate": resource_v1, "HorizontalPodAutoscaler": autoscaling_v2,
        "PodDisruptionBudget": policy_v1,
    }  # fmt: skip
    return getattr(places[kind], kind)
