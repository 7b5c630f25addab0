"""Ed25519 over the canonical bytes of a label. Keys come in as raw bytes; where they are kept is not decided here."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass

from tonnage.configure.label import Label, SignedLabel
from tonnage.configure.label_json import signed_bytes
from tonnage.configure.refusals import BadSignature, Expired, NotYetValid, OtherProgram, Replayed, UnknownServer
from tonnage.errors import MissingDependency

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ModuleNotFoundError:
    raise MissingDependency("labels need the package cryptography", "pip install 'tonnage[configure]'") from None

CLOCK_SECONDS = 60  # by which clocks of server and manager may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A server that the user has said to trust."""

    name: str
    public_key: bytes
    url: str = ""

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public_key)


def fingerprint(public_key: bytes) -> str:
    """For people to compare: SHA-256 of the key, in groups."""
    digits = hashlib.sha256(public_key).hexdigest()
    return ":".join(digits[place : place + 4] for place in range(0, 64, 4))


def public_key(private_key: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()


def sign(label: Label, private_key: bytes) -> SignedLabel:
    label.check()
    signature = Ed25519PrivateKey.from_private_bytes(private_key).sign(signed_bytes(label))
    return SignedLabel(label=label, signature=signature.hex())


def verify(
    signed: SignedLabel,
    known_servers: Mapping[str, KnownServer],
    *,
    now: float,
    seen_ids: Container[str],
    program_digest: str,
) -> Label:
    """The label, if it may be deployed; else raises the `Refused` that says why. Who has signed is asked first, so that
    nothing else of a forged label is believed."""
    label = verify_signature(signed, known_servers)
    if now < label.issued_at - CLOCK_SECONDS:
        raise NotYetValid(
            f"the label is valid from {label.issued_at}, and it is {now:.0f} (seconds since 1970)",
            "set the clocks of this machine and of the server",
        )
    if now >= label.expires_at:
        late = now - label.expires_at
        raise Expired(f"the label has expired {late:.0f} seconds ago", "ask for a new one: tonnage configure")
    if label.program_digest != program_digest:
        raise OtherProgram(
            f"the label is for a program with the digest {label.program_digest[:19]}..., this one has "
            f"{program_digest[:19]}...",
            "the program, its arguments or a module of it has changed: run tonnage configure again",
        )
    if label.id in seen_ids:
        raise Replayed("the label was deployed already", "each label counts once; ask for a new one: tonnage configure")
    return label


def verify_signature(signed: SignedLabel, known_servers: Mapping[str, KnownServer]) -> Label:
    """Whether a known server has signed exactly this."""
    signed.check()
    label = signed.label
    server = known_servers.get(label.server)
    if server is None:
        raise UnknownServer(
            f"the label is from the server {label.server}, which is not known here", "tonnage servers add URL"
        )
    try:
        key = Ed25519PublicKey.from_public_bytes(server.public_key)
        key.verify(bytes.fromhex(signed.signature), signed_bytes(label))
    except (InvalidSignature, ValueError):
        raise BadSignature(
            f"the signature is not that of the server {server.name}: the label was forged or changed, "
            f"or the server has a new key",
            f"compare fingerprints with its operator; known is {server.fingerprint}",
        ) from None
    return label
