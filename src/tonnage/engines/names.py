"""Names that every engine takes: what Kubernetes allows, since it is the strictest."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from tonnage.errors import UsageError

# Kubernetes adds up to 12 characters to a Job's name for its pods, and a pod's name as a host name has 63.
NAME_CHARACTERS = 50
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_name(name: str) -> bool:
    """Whether every engine takes it."""
    return len(name) <= NAME_CHARACTERS and _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """The name, if every engine takes it."""
    if is_name(name):
        return name
    rule = f"small letters, digits and dashes, a letter first, at most {NAME_CHARACTERS} characters"
    raise UsageError(f"{name!r} cannot be a name: {rule}", f"for example: --name {name_like(name)}")


def name_like(text: str) -> str:
    """The nearest valid name: `Train_ViT.py` as `train-vit-py`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")
    return name[: NAME_CHARACTERS - 10].strip("-") or "job"


def fresh_name(program: str) -> str:
    """A name that no other deployment has: that of the program, and five letters."""
    return f"{name_like(program)}-{secrets.token_hex(3)[:5]}"


def is_label_value(text: str) -> bool:
    """Whether Kubernetes takes it as the value of a label; annotations take anything."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """`name` or `dns.prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    has_prefix = len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix) is not None
    return _LABEL_NAME.fullmatch(name) is not None and (not slash or has_prefix)


def check_labels(labels: Mapping[str, str]) -> None:
    """Keys only: values that are no label for Kubernetes become annotations there."""
    for key in labels:
        if not is_label_key(key):
            raise UsageError(f"{key!r} cannot be the name of a label", "for example: team or example.com/team")


def check_environment(environment: Mapping[str, str]) -> None:
    """Names of variables, before a client reads one as an option."""
    for key, value in environment.items():
        if not _VARIABLE.fullmatch(key) or "\0" in value:
            raise UsageError(f"{key!r} cannot be an environment variable")
