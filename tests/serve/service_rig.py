"""A base image that has Python, pip and what Tonnage needs, but not Tonnage; and a wheel of Tonnage to install into it.

No registry and no package index is asked: everything is what runs the tests.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import ipaddress
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import tonnage

sys.path.append(str(Path(__file__).parents[1] / "engines"))
from podman_rig import podman
from rootfs import libraries_of, python_home, write_rootfs

IMAGE = f"localhost/tonnage-test-serve:{os.getpid()}"
PACKAGES = (
    "typer", "rich", "pydantic", "numpy", "PyYAML", "platformdirs", "nvidia-ml-py", "psutil", "grpcio", "httptools",
    "onnxruntime", "orjson", "protobuf", "uvloop",
)  # fmt: skip
# Where the Python of the image looks, which is that of the virtual environment; Debian's has a place of its own.
_INSTALLED = subprocess.run(
    [Path(sys.executable).resolve(), "-I", "-c", "import site; print(site.getsitepackages()[0])"],
    capture_output=True, text=True, check=True,
).stdout.strip()  # fmt: skip

__all__ = ["podman", "serve_image"]


@pytest.fixture(scope="module")
def serve_image(podman: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: ARG001 - it must be there
    """Skips, loudly, where containers cannot be run here at all."""
    archive = write_rootfs(tmp_path_factory.mktemp("rootfs") / "root.tar")
    _add_packages(archive, ("pip", *PACKAGES))
    made = run_podman("import", "--change", f"ENV PYTHONHOME={python_home()}", str(archive), IMAGE)
    tried = run_podman(
        "run", "--rm", "--network=none", IMAGE, "/usr/bin/python3", "-c", "import onnxruntime; print(6 * 7)"
    )
    if made.returncode or tried.stdout.strip() != "42":
        pytest.skip(f"PODMAN DOES NOT RUN HERE: services are not tried: {made.stderr[-300:]}{tried.stderr[-300:]}")
    yield IMAGE
    identity = run_podman("image", "inspect", "--format", "{{.Id}}", IMAGE).stdout.strip()
    built = run_podman("images", "--quiet", "--filter", f"label=tonnage.base={identity}").stdout.split()
    run_podman("rmi", "--force", *set(built), IMAGE)


def run_podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=300)


def write_wheel(folder: Path) -> Path:
    """The package as it is in the source folder."""
    source, version = Path(tonnage.__file__).parent, tonnage.__version__
    path, about = folder / f"tonnage-{version}-py3-none-any.whl", f"tonnage-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {name}\n" for name in PACKAGES)
    told = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tonnage\nVersion: {version}\nProvides-Extra: serve\n{needs}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                wheel.write(file, str(file.relative_to(source.parent)))
        for name, text in told.items():
            wheel.writestr(name, text)
        listed = "".join(f"{name},,\n" for name in (*wheel.namelist(), f"{about}/RECORD"))
        wheel.writestr(f"{about}/RECORD", listed)
    return path


def write_model(models: Path, name: str, factor: float) -> None:
    """`OUTPUT` is so many times `INPUT`, four numbers a row."""
    rows = ["n", 4]
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["INPUT", "factor"], ["OUTPUT"])],
        name,
        [tensor("INPUT", onnx.TensorProto.FLOAT, rows)],
        [tensor("OUTPUT", onnx.TensorProto.FLOAT, rows)],
        [onnx.helper.make_tensor("factor", onnx.TensorProto.FLOAT, [1], [factor])],
    )
    _save(graph, models / name / "1")


def write_slow_model(models: Path, name: str, rounds: int) -> None:
    """`OUTPUT` is twice `INPUT`, after so many products of matrices for nothing."""
    helper, kind = onnx.helper, onnx.TensorProto
    tensor = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("MatMul", ["matrix", "matrix"], ["square"]),
            helper.make_node("Tanh", ["square"], ["next"]),
        ],
        "body",
        [tensor("round", kind.INT64, []), tensor("go", kind.BOOL, []), tensor("matrix", kind.FLOAT, [128, 128])],
        [tensor("goes", kind.BOOL, []), tensor("next", kind.FLOAT, [128, 128])],
    )
    nodes = [
        helper.make_node("ReduceSum", ["INPUT"], ["sum"], keepdims=0),
        helper.make_node("Expand", ["sum", "shape"], ["first"]),
        helper.make_node("Loop", ["rounds", "", "first"], ["last"], body=body),
        helper.make_node("ReduceSum", ["last"], ["total"], keepdims=0),
        helper.make_node("Mul", ["total", "zero"], ["nothing"]),
        helper.make_node("Mul", ["INPUT", "two"], ["double"]),
        helper.make_node("Add", ["double", "nothing"], ["OUTPUT"]),
    ]
    constants = [
        helper.make_tensor("shape", kind.INT64, [2], [128, 128]),
        helper.make_tensor("rounds", kind.INT64, [], [rounds]),
        helper.make_tensor("zero", kind.FLOAT, [], [0.0]),
        helper.make_tensor("two", kind.FLOAT, [1], [2.0]),
    ]
    row = [1, 4]
    graph = helper.make_graph(
        nodes, name, [tensor("INPUT", kind.FLOAT, row)], [tensor("OUTPUT", kind.FLOAT, row)], constants
    )
    _save(graph, models / name / "1")


def write_certificate(folder: Path) -> None:
    """certificate.pem and key.pem of a server at 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "service")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = made.add_extension(here, critical=False).sign(key, hashes.SHA256())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))


def _save(graph: onnx.GraphProto, place: Path) -> None:
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    place.mkdir(parents=True)
    onnx.save(model, place / "model.onnx")


def _add_packages(archive: Path, names: tuple[str, ...]) -> None:
    files = {str(file): Path(str(file.locate())) for each in _closure(names) for file in each.files or ()}
    kept = {name: path for name, path in files.items() if not re.search(r"\.\.|__pycache__|/tests?/", name)}
    binaries = [path for path in kept.values() if ".so" in path.name and path.is_file()]
    with tarfile.open(archive, "a") as tar:
        there = set(tar.getnames())
        for name, path in kept.items():
            if path.is_file():
                tar.add(path, arcname=f"{_INSTALLED}/{name}".lstrip("/"))
        for needed in sorted(libraries_of(binaries)):
            if (place := str(needed).lstrip("/")) not in there and "site-packages" not in place:
                tar.add(needed.resolve(), arcname=place)


def _closure(names: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    """With all that they need, extras left out."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = list(names)
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, as its marker says
        lines = (line for line in found[name].requires or () if "extra ==" not in line)
        wanted += [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in lines]
    return list(found.values())
