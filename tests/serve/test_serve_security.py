"""Tokens and TLS on all ports of a real server."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_server import Rig, add, ask, infer, serving, wait_for, write_models

grpc = pytest.importorskip("grpc")
pytestmark = pytest.mark.slow
TOKEN, READER = "the-token-of-the-owner", "the-token-of-a-reader"
ACCESS = f"""
clients:
  - {{name: owner, token: {TOKEN}}}
  - {{name: reader, token: {READER}, routes: [metadata]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secure")
    write_models(path / "models", instances=1)
    (path / "access.yaml").write_text(ACCESS)
    _write_certificate(path)
    return path


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Rig]:
    with serving(folder / "models", "--access", str(folder / "access.yaml"), "--log-requests") as rig:
        yield rig


@pytest.fixture(scope="module")
def encrypted(folder: Path) -> Iterator[Rig]:
    options = ("--tls-certificate", str(folder / "certificate.pem"), "--tls-key", str(folder / "key.pem"))
    with serving(folder / "models", *options) as rig:
        yield rig


def _write_certificate(folder: Path) -> None:
    """Of this machine's own address, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/v2/health/live", "", 200), ("/v2/models/add", "", 401), ("/v2/models/add", "not-a-token", 401),
        ("/v2/models/add", READER, 200), ("/v2/models/add", TOKEN, 200), ("/v2/models/add/stats", READER, 403),
        ("/page/state", READER, 403), ("/page/state", TOKEN, 200),
    ],
)  # fmt: skip
def test_each_route_has_its_own_tokens(guarded: Rig, path: str, token: str, status: int) -> None:
    assert ask(guarded.addresses["REST"] + path, token=token)[0] == status


@pytest.mark.parametrize("path", ["/v2/repository/models/add/load", "/v2/%72epository/models/add/load"])
def test_a_route_in_disguise_needs_the_same_token(guarded: Rig, path: str) -> None:
    assert ask(guarded.addresses["REST"] + path, {}, token=READER)[0] == 403


def test_inference_and_metrics_need_tokens(guarded: Rig) -> None:
    assert infer(guarded, "add", add(1.0))[0] == 401
    assert infer(guarded, "add", add(1.0), token=TOKEN)[0] == 200
    assert ask(guarded.addresses["metrics"])[0] == 401
    assert ask(guarded.addresses["metrics"], token=READER)[0] == 403
    assert "nv_inference_count" in ask(guarded.addresses["metrics"], token=TOKEN)[1]


@pytest.mark.parametrize(
    ("token", "code"), [("", "UNAUTHENTICATED"), (READER, "PERMISSION_DENIED"), (TOKEN, "NOT_FOUND")]
)
def test_grpc_needs_the_same_tokens(guarded: Rig, token: str, code: str) -> None:
    from tonnage.serve.grpc_messages import SERVICE, message

    content = message("RepositoryModelLoadRequest")(model_name="none").SerializeToString()
    with grpc.insecure_channel(guarded.addresses["gRPC"]) as channel:
        call = channel.unary_unary(f"/{SERVICE}/RepositoryModelLoad")
        with pytest.raises(grpc.RpcError) as raised:
            call(content, metadata=[("authorization", f"Bearer {token}")] if token else [], timeout=20)
    assert raised.value.code().name == code


def test_the_log_has_requests_with_ids_and_no_tokens(guarded: Rig) -> None:
    infer(guarded, "add", {**add(1.0), "id": "my-request"}, token=TOKEN)
    infer(guarded, "add", {**add(1.0), "id": "my-request"}, token="some-other-token-of-mine")
    for told in ("request=my-request", "status=200", "status=401"):  # a thread reads it
        wait_for(lambda told=told: any(told in line for line in guarded.log))
    log = "\n".join(guarded.log)
    assert "client=owner" in log
    assert not any(token in log for token in (TOKEN, READER, "some-other-token"))


def test_rest_and_metrics_speak_tls(folder: Path, encrypted: Rig) -> None:
    context = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    assert encrypted.addresses["REST"].startswith("https://")
    assert infer(encrypted, "add", add(1.0), context=context)[0] == 200
    assert "nv_inference_count" in ask(encrypted.addresses["metrics"], context=context)[1]


def test_grpc_speaks_tls(folder: Path, encrypted: Rig) -> None:
    from tonnage.serve.grpc_messages import SERVICE, message

    credentials = grpc.ssl_channel_credentials((folder / "certificate.pem").read_bytes())
    with grpc.secure_channel(encrypted.addresses["gRPC"], credentials) as channel:
        answer = channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=20)
    assert message("ServerLiveResponse").FromString(answer).live


def test_without_tls_nothing_is_told(encrypted: Rig) -> None:
    with pytest.raises(OSError, match=r"reset|closed|refused|Remote end"):
        ask(encrypted.addresses["REST"].replace("https", "http") + "/v2")


def test_a_key_that_does_not_fit_is_told(folder: Path, tmp_path: Path) -> None:
    _write_certificate(tmp_path)
    options = ("--tls-certificate", str(folder / "certificate.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with serving(folder / "models", *options, wait=False) as rig:
        assert rig.process.wait(60) == 2
    assert any("cannot be used for TLS" in line for line in rig.log)
