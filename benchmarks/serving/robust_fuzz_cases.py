"""Requests that are almost right."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from robust_rig import COLUMNS

PATHS = [
    "/v2/models/add/infer", "/v2/models/add/infer", "/v2/models/add/infer", "/v2/models/loop/ready",
    "/v2/models/add/versions/1/infer", "/v2", "/v2/health/ready", "/v2/models/add", "/v2/models/add/config",
    "/v2/models/add/stats", "/v2/models/stats", "/v2/repository/index", "/v2/repository/models/none/load",
    "/v2/repository/models/none/unload", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/a/register",
    "/v2/systemsharedmemory/region/a/unregister", "/v2/cudasharedmemory/status", "/", "/page/state", "*",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 1e308, -0.5, "", "x", "FP32", "INT64", "BYTES", "BF16", "é\u0000", [], {}, [[]],
    [None], {"a": []}, ["x"], [1, [2]], "9" * 400, "../../etc", {"binary_data_size": -1}, {"binary_data_size": 10**15},
    {"shared_memory_region": 1}, {"shared_memory_region": "a", "shared_memory_byte_size": 4}, [2**40, 2**40],
]  # fmt: skip
METHODS = [
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig", "ModelStatistics",
    "RepositoryIndex", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", *["ModelInfer"] * 20,
]  # fmt: skip


def damaged_http(chance: random.Random) -> tuple[bytes, bool]:
    """A request, and whether it is sure to be a whole one, to which an answer must come."""
    path = chance.choice(PATHS)
    usual = "POST" if path.endswith(("infer", "register", "load")) or "repository" in path else "GET"
    method = chance.choices([usual, "POST", "GET", "HEAD", "PUT", "OPTIONS", "x"], [30, 2, 2, 1, 1, 1, 1])[0]
    body, header_size = _body(chance)
    headers = {"Host": "here", "Content-Length": str(len(body))}
    if header_size is not None:
        headers["Inference-Header-Content-Length"] = str(header_size)
    is_whole = True
    for _ in range(chance.choice([0, 0, 1, 2])):
        is_whole &= _damage_headers(headers, chance)
    if chance.random() < 0.1:
        path = _changed(path.encode(), chance).decode("latin-1").replace(" ", "").replace("\r", "").replace("\n", "")
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    content = head.encode("latin-1", "replace") + body
    if chance.random() < 0.1:
        return _changed(content, chance), False
    return content, is_whole and method != "x" and path != ""


def _damage_headers(headers: dict[str, str], chance: random.Random) -> bool:
    """Does the length still tell where the request ends?"""
    kind = chance.randrange(7)
    if kind == 0:
        headers["Inference-Header-Content-Length"] = chance.choice(["-1", "x", "0", "7", "99999999999999999999", ""])
    elif kind == 1:
        headers["Content-Length"] = chance.choice(["-1", "x", "0", "7", "99999999999999999999", "", "1048577"])
        return False
    elif kind == 2:
        headers["Content-Encoding"] = chance.choice(["gzip", "deflate", "br", "", "gzip, gzip"])
    elif kind == 3:
        headers["Accept-Encoding"] = chance.choice(["gzip", "deflate;q=x", "*", ";", "gzip;q=0"])
    elif kind == 4:
        headers["Transfer-Encoding"] = "chunked"
        return False
    elif kind == 5:
        headers[chance.choice(["Authorization", "Expect", "Connection", "X-Request-Id", "Upgrade"])] = chance.choice(
            ["Bearer x", "100-continue", "close", "\x01", "é", "websocket", "x" * 2000]
        )
        return False
    else:
        headers["X" * chance.choice([1, 100, 70_000])] = "y"
    return True


def _body(chance: random.Random) -> tuple[bytes, int | None]:
    """And the length of its JSON, where bytes follow."""
    if chance.random() < 0.1:
        return bytes(chance.randrange(256) for _ in range(chance.choice([0, 1, 10, 1000]))), None
    document = _document(chance)
    binary = b""
    if chance.random() < 0.4:
        binary = bytes(4 * COLUMNS)
        document["inputs"][0]["parameters"] = {"binary_data_size": len(binary)}
        del document["inputs"][0]["data"]
    for _ in range(chance.choice([0, 1, 1, 2])):
        _damage(document, chance)
    head = json.dumps(document).encode()
    if chance.random() < 0.2:
        head = _changed(head, chance)
    return head + binary, len(head) if binary else None


def _document(chance: random.Random) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": [1.0] * COLUMNS}
    if chance.random() < 0.1:
        tensor = {"name": "n", "datatype": "INT64", "shape": [1], "data": [3]}
    document: dict[str, Any] = {"id": "1", "inputs": [tensor]}
    if chance.random() < 0.5:
        document["outputs"] = [{"name": "y", "parameters": {"classification": 2}}]
    if chance.random() < 0.5:
        document["parameters"] = {"timeout": 1000, "priority": 1, "binary_data_output": True}
    return document


def _damage(document: Any, chance: random.Random) -> None:
    """One field somewhere is removed, added or changed."""
    while True:
        key = chance.choice(list(document)) if isinstance(document, dict) else chance.randrange(len(document))
        inner = document[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            document = inner
            continue
        if chance.random() < 0.2:
            del document[key]
        else:
            document[key] = copy.deepcopy(chance.choice(VALUES))
        return


def _changed(content: bytes, chance: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(made) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            made[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        elif kind == 1:
            del made[place : place + chance.randint(1, 20)]
        elif kind == 2 and place < len(made):
            made[place] = chance.randrange(256)
        else:
            made[place:place] = made[place : place + chance.randint(1, 40)]
    return bytes(made)


def grpc_case(chance: random.Random) -> tuple[str, bytes]:
    """A method, and a message that it may or may not take."""
    from tonnage.serve.grpc_messages import SERVICE, message

    method = f"/{SERVICE}/{chance.choice(METHODS)}"
    if chance.random() < 0.2:
        return method, bytes(chance.randrange(256) for _ in range(chance.choice([0, 1, 10, 300])))
    request = message("ModelInferRequest")(model_name=chance.choice(["add", "add", "add", "", "none"]), id="7")
    one = request.inputs.add(
        name=chance.choice(["x", "x", "n", ""]), datatype=chance.choice(["FP32", "INT64", "", "BF16"])
    )
    one.shape.extend(chance.choice([[1, COLUMNS], [1, COLUMNS], [], [-1, 2], [2**62, 2**62], [1]]))
    if chance.random() < 0.5:
        request.raw_input_contents.append(bytes(chance.choice([0, 4 * COLUMNS, 4 * COLUMNS, 5])))
    else:
        one.contents.fp32_contents.extend([1.0] * chance.choice([0, COLUMNS]))
    for name in ("priority", "timeout", "sequence_id"):
        if chance.random() < 0.2:
            request.parameters[name].int64_param = chance.choice([0, 1, -1, 2**62])
    if chance.random() < 0.2:
        request.outputs.add(name=chance.choice(["y", ""])).parameters["classification"].int64_param = chance.choice(
            [1, -1]
        )
    content = request.SerializeToString()
    return method, _changed(content, chance) if chance.random() < 0.5 else content
