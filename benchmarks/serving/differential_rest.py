"""REST requests: valid ones, and every way in which one can be wrong."""

import copy
import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from differential_drafts import Draft, drafted, plain, raw
from differential_models import TWINS, Twin

_NOT_IN_JSON = ("FP16", "BF16")


@dataclass(slots=True)
class RestRequest:
    category: str
    method: str
    path: str
    document: Any = None
    tail: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    header_size: str = ""  # instead of the true one
    body: bytes | None = None  # instead of document and tail

    def written(self) -> tuple[dict[str, str], bytes]:
        """Headers and body."""
        headers = dict(self.headers)
        head = b"" if self.document is None else json.dumps(self.document).encode()
        body = b"".join((head, *self.tail)) if self.body is None else self.body
        if self.tail or self.header_size:
            headers["Inference-Header-Content-Length"] = self.header_size or str(len(head))
        encoding = headers.get("Content-Encoding")
        if encoding == "gzip":
            body = gzip.compress(body)
        elif encoding == "deflate":
            body = zlib.compress(body)
        headers.pop("X-Not-Compressed", None)
        if "X-Not-Compressed" in self.headers:
            headers["Content-Encoding"] = self.headers["X-Not-Compressed"]
        return headers, body


def infer_path(draft: Draft) -> str:
    version = f"/versions/{draft.version}" if draft.version else ""
    return f"/v2/models/{draft.twin.name}{version}/infer"


def json_request(rng: random.Random, twins: tuple[Twin, ...] = TWINS) -> RestRequest:
    draft = drafted(rng, twins, without=_NOT_IN_JSON)
    inputs = [_input(name, draft, data=plain(rng, array)) for name, array in draft.inputs.items()]
    return RestRequest("REST JSON", "POST", infer_path(draft), _document(draft, inputs, {}))


def binary_request(rng: random.Random, twins: tuple[Twin, ...] = TWINS) -> RestRequest:
    """All inputs as bytes, or only some."""
    draft = drafted(rng, twins)
    inputs, tail = [], []
    for name, array in draft.inputs.items():
        if rng.random() < 0.2 and draft.twin.datatype not in _NOT_IN_JSON:
            inputs.append(_input(name, draft, data=plain(rng, array)))
        else:
            tail.append(raw(array))
            inputs.append(_input(name, draft, parameters={"binary_data_size": len(tail[-1])}))
    parameters = {"binary_data_output": rng.random() < 0.7} if rng.random() < 0.7 else {}
    if draft.twin.datatype in _NOT_IN_JSON and draft.outputs is None:
        parameters = {"binary_data_output": True}
    document = _document(draft, inputs, parameters)
    for each in document.get("outputs", ()):
        if rng.random() < 0.7 or draft.twin.datatype in _NOT_IN_JSON:
            each["parameters"] = {"binary_data": draft.twin.datatype in _NOT_IN_JSON or rng.random() < 0.5}
    return RestRequest("REST binary", "POST", infer_path(draft), document, tail)


def compressed_request(rng: random.Random) -> RestRequest:
    made = rng.choice((json_request, binary_request))(rng)
    made.category = "REST compressed"
    if rng.random() < 0.7:
        made.headers["Content-Encoding"] = rng.choice(("gzip", "deflate"))
    accepted = rng.choice(
        ("", "gzip", "deflate", "gzip, deflate", "deflate, gzip", "identity", "br", "*", "GZIP;q=0.5")
    )
    if accepted:
        made.headers["Accept-Encoding"] = accepted
    return made


def classes_request(rng: random.Random) -> RestRequest:
    twins = tuple(each for each in TWINS if each.name in ("scores", "counts", "add_sub", "same_fp64", "same_uint8"))
    made = rng.choice((json_request, binary_request))(rng, twins)
    made.category = "REST classification"
    name = made.path.split("/")[3]
    twin = next(each for each in TWINS if each.name == name)
    parameters: dict[str, Any] = {"classification": rng.randint(1, 6)}
    if rng.random() < 0.5:
        parameters["binary_data"] = rng.random() < 0.5
    made.document["outputs"] = [{"name": each, "parameters": parameters} for each in twin.outputs]
    return made


def wrong_request(rng: random.Random) -> RestRequest:
    """A good one with one thing wrong."""
    name = rng.choice(tuple(MISTAKES))
    while True:
        made = rng.choice((json_request, binary_request))(rng)
        made.document = copy.deepcopy(made.document)
        if MISTAKES[name](rng, made) is not False:
            made.category = f"REST, {name}"
            return made


def _input(name: str, draft: Draft, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(draft.inputs[name].shape), "datatype": draft.twin.datatype, **more}


def _document(draft: Draft, inputs: list[dict[str, Any]], parameters: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"id": draft.id} if draft.id else {}
    document["inputs"] = inputs
    if draft.outputs is not None:
        document["outputs"] = [{"name": name} for name in draft.outputs]
    if parameters:
        document["parameters"] = parameters
    return document


# -- mistakes: each changes a request, and returns False where it cannot ------------------------------------------------------

Mistake = Callable[[random.Random, RestRequest], object]


def _first(made: RestRequest) -> dict[str, Any]:
    return made.document["inputs"][0]


def _with_data(change: Callable[[random.Random, list[Any]], Any]) -> Mistake:
    def mistake(rng: random.Random, made: RestRequest) -> object:
        if "data" not in _first(made):
            return False
        _first(made)["data"] = change(rng, _first(made)["data"])
        return True

    return mistake


def _with_bytes(change: Callable[[random.Random, RestRequest], object]) -> Mistake:
    def mistake(rng: random.Random, made: RestRequest) -> object:
        return False if not made.tail or "data" in _first(made) else change(rng, made)

    return mistake


def _set(name: str, *choices: Any) -> Mistake:
    """A field of the first input."""
    return lambda rng, made: _first(made).update({name: rng.choice(choices)})


def _document_set(name: str, *choices: Any) -> Mistake:
    return lambda rng, made: made.document.update({name: rng.choice(choices)})


def _parameter(name: str, *choices: Any) -> Mistake:
    def mistake(rng: random.Random, made: RestRequest) -> None:
        made.document.setdefault("parameters", {})[name] = rng.choice(choices)

    return mistake


def _output_parameter(name: str, *choices: Any) -> Mistake:
    def mistake(rng: random.Random, made: RestRequest) -> object:
        if not made.document.get("outputs"):
            return False
        made.document["outputs"][0].setdefault("parameters", {})[name] = rng.choice(choices)
        return True

    return mistake


def _classification(rng: random.Random, made: RestRequest) -> object:
    if _first(made)["datatype"] == "BYTES":  # which ends a Triton server
        return False
    return _output_parameter("classification", 0, -1, 1.5, "1", None, True, [], 10**6)(rng, made)


def _other_shape(rng: random.Random, made: RestRequest) -> None:
    shape = _first(made)["shape"]
    place = rng.randrange(len(shape)) if shape else 0
    change = rng.choice(("longer", "shorter", "more axes", "fewer axes", "many rows", "nothing"))
    if change == "more axes":
        shape.insert(place, 1)
    elif change == "fewer axes":
        del shape[place : place + 1]
    elif shape:
        shape[place] = {"longer": shape[place] + 1, "shorter": max(shape[place] - 1, 0), "many rows": 50}.get(change, 0)


def _many_rows(rng: random.Random, made: RestRequest) -> object:
    """True shapes, and data as they say, but more rows than the model takes."""
    first = _first(made)
    if made.tail or "add_sub" in made.path or not any(each in made.path for each in ("scores", "words")):
        return False
    first["shape"][0] = rng.randint(5, 9)
    width = 4 if "scores" in made.path else 2
    first["data"] = (["a"] if "words" in made.path else [1.0]) * first["shape"][0] * width
    return True


def _twice(rng: random.Random, made: RestRequest) -> object:
    if made.tail:
        return False
    made.document["inputs"].append(copy.deepcopy(rng.choice(made.document["inputs"])))
    return True


def _extra(rng: random.Random, made: RestRequest) -> None:
    name = rng.choice(("other", "x2", ""))
    made.document["inputs"].append({"name": name, "shape": [1], "datatype": "FP32", "data": [1.0]})


def _missing(rng: random.Random, made: RestRequest) -> object:
    if made.tail or len(made.document["inputs"]) < 2:
        return False
    del made.document["inputs"][rng.randrange(2)]
    return True


def _without(field_name: str) -> Mistake:
    return lambda rng, made: _first(made).pop(field_name, None)


def _broken(rng: random.Random, made: RestRequest) -> object:
    if made.tail:
        return False
    text = json.dumps(made.document).encode()
    cut = text[: rng.randrange(len(text))]
    cut_off = (cut, text + b"}", text[:-1] + b",}", text.replace(b":", b"=", 1), text.replace(b'"', b"'"))
    others = (b"", b"[]", b"null", b"17", b'"text"', b"{", b"\xff\xfe", b"{}", b"[" * 300, b" " + text + b"\n ")
    made.body = rng.choice((*cut_off, *others))
    return True


def _short_tail(rng: random.Random, made: RestRequest) -> None:
    made.tail[-1] = made.tail[-1][: rng.randrange(len(made.tail[-1]))]


def _long_tail(rng: random.Random, made: RestRequest) -> None:
    made.tail.append(bytes(rng.randint(1, 8)))


def _told_size(rng: random.Random, made: RestRequest) -> None:
    size = _first(made)["parameters"]["binary_data_size"]
    told = rng.choice((size + 1, size - 1, size + 4, 0, -1, 2**31, 2**63, str(size), float(size), None, [size], True))
    _first(made)["parameters"]["binary_data_size"] = told


def _header(rng: random.Random, made: RestRequest) -> object:
    if not made.tail:
        return False
    size = len(json.dumps(made.document))
    made.header_size = str(
        rng.choice((size - 1, size + 1, 0, -1, 10**6, 10**20, "text", "1.5", f" {size}", f"{size}x", ""))
    )
    return bool(made.header_size)


def _encoding(rng: random.Random, made: RestRequest) -> None:
    made.headers["X-Not-Compressed"] = rng.choice(("gzip", "deflate", "br", "zstd", "GZIP", "identity"))


def _other_path(*choices: str) -> Mistake:
    def mistake(rng: random.Random, made: RestRequest) -> None:
        name = made.path.split("/")[3]
        made.path = rng.choice(choices).replace("MODEL", name)

    return mistake


def _method(rng: random.Random, made: RestRequest) -> None:
    made.method = rng.choice(("GET", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"))


_ODD: tuple[Any, ...] = (None, True, 3, -1, 1.5, "text", [], {}, [1], {"a": 1})
MISTAKES: dict[str, Mistake] = {
    "unknown input": _set("name", "nobody", "", "X", " x"),
    "wrong kind of name": _set("name", None, 3, True, [], {}),
    "other datatype": _set("datatype", "FP32", "INT8", "BYTES", "FP64", "UINT8", "BOOL", "INT64", "FP16"),
    "unknown datatype": _set("datatype", "FP31", "fp32", "", "STRING", "TYPE_FP32", "INT128"),
    "wrong kind of datatype": _set("datatype", None, 3, True, [], {}),
    "other shape": _other_shape,
    "wrong kind of shape": _set("shape", None, 3, "1", {}, [1.5], ["1"], [None], [[1]], [True], [-1], [-1, 2]),
    "batch too large": _many_rows,
    "huge shape": _with_bytes(_set("shape", [2**31, 2**31], [2**62, 4], [2**40], [10**6, 10**6, 10**6])),  # JSON ends Triton
    "missing name": _without("name"),
    "missing datatype": _without("datatype"),
    "missing shape": _without("shape"),
    "missing data": _without("data"),
    "missing input": _missing,
    "extra input": _extra,
    "duplicate input": _twice,
    "wrong kind of data": _with_data(lambda rng, data: rng.choice(_ODD)),
    "more or less data": _with_data(lambda rng, data: data[:-1] if rng.random() < 0.5 else data + data[:1]),
    "odd value in data": _with_data(lambda rng, data: [rng.choice(_ODD), *data[1:]]),
    "number out of range": _with_data(
        lambda rng, data: [rng.choice((300, -1, 2**31, 2**40, -(2**40), 2**64, 1e300, 1e40, 70000)), *data[1:]]
    ),
    "no finite number": _with_data(
        lambda rng, data: [rng.choice((float("nan"), float("inf"), -float("inf"))), *data[1:]]
    ),
    "data in two places": _with_bytes(lambda rng, made: _first(made).update(data=rng.choice(([1], [], [1, 2])))),
    "irregular lists": _with_data(lambda rng, data: [data[:1], *data[1:]]),
    "wrong kind of inputs": _document_set("inputs", None, 3, "text", {}, [], [None], [3], ["x"], [[]]),
    "missing inputs": lambda rng, made: made.document.pop("inputs") and None,
    "wrong kind of outputs": _document_set("outputs", None, 3, "text", {}, [], [None], [3], ["y"], [{}], [{"name": 3}]),
    "unknown output": _document_set("outputs", [{"name": "nobody"}], [{"name": ""}], [{"name": "Y"}]),
    "duplicate output": lambda rng, made: made.document["outputs"].append(made.document["outputs"][0])
    if made.document.get("outputs") else False,
    "wrong kind of id": _document_set("id", None, 3, True, [], {}, 1.5),
    "wrong kind of parameters": _document_set("parameters", None, 3, "text", [], True),
    "own parameter": _parameter("own", "text", 3, 1.5, True, -3),
    "odd own parameter": _parameter("own", None, [], {}, [1], {"a": 1}),
    "priority": _parameter("priority", 0, 1, 3, -1, "1", "text", 1.5, True, None, 2**64),
    "timeout": _parameter("timeout", 0, 10**9, -1, "1", "text", 1.5, True, None),
    "sequence": _parameter("sequence_id", 0, 3, "text", -1, 1.5, True),
    "binary_data_output": _parameter("binary_data_output", None, 3, "true", [], 1, 0),
    "binary_data": _output_parameter("binary_data", None, 3, "true", [], 1, 0),
    "classification": _classification,
    "unknown region": lambda rng, made: _first(made).update(
        parameters={"shared_memory_region": "nobody", "shared_memory_byte_size": rng.choice((0, 8, 64))}
    ),
    "unknown region for an output": _output_parameter("shared_memory_region", "nobody", 3, None),
    "wrong kind of input parameters": _set("parameters", None, 3, "text", [], True),
    "own input parameter": _set("parameters", {"own": 3}, {"own": "text"}, {}),
    "malformed JSON": _broken,
    "bytes too few": _with_bytes(_short_tail),
    "bytes too many": _with_bytes(_long_tail),
    "wrong size of bytes": _with_bytes(_told_size),
    "Inference-Header-Content-Length": _header,
    "wrong Content-Encoding": _encoding,
    "unknown model": _other_path("/v2/models/nobody/infer", "/v2/models/nobody/versions/1/infer", "/v2/models/%20/infer"),
    "unknown version": _other_path(
        "/v2/models/MODEL/versions/9/infer", "/v2/models/MODEL/versions/2/infer", "/v2/models/MODEL/versions/0/infer",
        "/v2/models/MODEL/versions/x/infer", "/v2/models/MODEL/versions/-1/infer", "/v2/models/MODEL/versions//infer",
        "/v2/models/MODEL/versions/99999999999999999999/infer", "/v2/models/MODEL/versions/01/infer",
    ),
    "unknown route": _other_path(
        "/v2/models/MODEL/inference", "/v2/models//infer", "/v2/models/infer", "/v2/models/MODEL/infer/", "/v1/models/MODEL",
        "/v2/MODEL/infer", "/v3/models/MODEL/infer", "/infer", "/v2/models/MODEL/versions/infer", "/v2/models/MODEL/",
        "/v2/models/MODEL/versions/1/2/infer", "/v2/models/MODEL/versions", "/v2/nothing", "/v2/models/MODEL/explain",
    ),
    "wrong method": _method,
    "query": lambda rng, made: setattr(made, "path", made.path + rng.choice(("?", "?a=1", "?a=1&b"))),
    "wrong Content-Type": lambda rng, made: made.headers.update(
        {"Content-Type": rng.choice(("text/plain", "application/octet-stream", "nothing"))}
    ),
}  # fmt: skip
