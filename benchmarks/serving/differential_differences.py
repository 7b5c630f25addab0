"""Where this server answers otherwise than Triton on purpose, each with its reason."""

import struct
from collections.abc import Callable
from typing import Any

from differential_answers import Answer
from differential_grpc import GrpcRequest
from differential_rest import RestRequest

Case = RestRequest | GrpcRequest
Differs = Callable[[Case, Answer, Answer], bool]
_OUR_REFUSALS = ("400", "404", "422", "INVALID_ARGUMENT", "NOT_FOUND", "refused in the stream")
_FAILURES = ("500", "INTERNAL")
_ANSWERED = ("200", "OK")


def expected(case: Case, ours: Answer, theirs: Answer) -> str:
    """The reason, or "" where there is none."""
    return next((reason for reason, differs in DIFFERENCES.items() if differs(case, ours, theirs)), "")


def _clients_mistake(_: Case, ours: Answer, theirs: Answer) -> bool:
    return theirs.status in _FAILURES and ours.status in _OUR_REFUSALS


def _out_of_range(case: Case, ours: Answer, theirs: Answer) -> bool:
    return _is_stricter(ours, theirs) and "do not fit" in ours.words and "number out of range" in case.category


def _negative_timeout(case: Case, ours: Answer, theirs: Answer) -> bool:
    return _is_stricter(ours, theirs) and case.category == "gRPC, timeout" and "timeout is -1" in ours.words


def _too_many_contents(_: Case, ours: Answer, theirs: Answer) -> bool:
    return _is_stricter(ours, theirs) and "raw_input_contents has" in ours.words


def _empty_body(case: Case, ours: Answer, theirs: Answer) -> bool:
    return isinstance(case, RestRequest) and _is_stricter(ours, theirs) and not case.written()[1]


def _no_size(case: Case, ours: Answer, theirs: Answer) -> bool:
    return ours.status == "400" and theirs.status == "404" and case.category == "REST, unknown region for an output"


def _no_number(case: Case, ours: Answer, theirs: Answer) -> bool:
    header = isinstance(case, RestRequest) and case.header_size
    return bool(header) and not str(header).isdigit() and _is_stricter(ours, theirs)


def _no_object(case: Case, ours: Answer, theirs: Answer) -> bool:
    is_load = isinstance(case, RestRequest) and case.path.endswith("/load") and not isinstance(case.document, dict)
    return is_load and _is_stricter(ours, theirs)


def _more_than_nothing(case: Case, ours: Answer, theirs: Answer) -> bool:
    return isinstance(case, RestRequest) and _is_stricter(ours, theirs) and ours.words.endswith('needs 0"}')


def _odd_version(case: Case, ours: Answer, theirs: Answer) -> bool:
    return case.category == "gRPC, unknown version" and _is_stricter(ours, theirs) and "is no version" in ours.words


def _not_compressed(case: Case, ours: Answer, theirs: Answer) -> bool:
    return case.category == "REST, wrong Content-Encoding" and _is_stricter(ours, theirs)


def _other_case(case: Case, ours: Answer, theirs: Answer) -> bool:
    if not isinstance(case, RestRequest) or case.headers.get("Accept-Encoding") != "GZIP;q=0.5":
        return False
    return _both_answer(ours, theirs) and ours.content[0] == "gzip" and ours.content[1] == theirs.content[1]


def _last_digit(case: Case, ours: Answer, theirs: Answer) -> bool:
    """Numbers of JSON that differ by at most two of the smallest steps."""
    if not isinstance(case, RestRequest) or not _both_answer(ours, theirs) or not isinstance(ours.content, tuple):
        return False
    one, two = ours.content[1][3], theirs.content[1][3]
    same = ours.content[0] == theirs.content[0] and ours.content[1][:3] == theirs.content[1][:3]
    return same and len(one) == len(two) and all(_close(*pair) for pair in zip(one, two, strict=True))


def _close(one: Any, two: Any) -> bool:
    if one == two:
        return True
    form = {"FP64": "q", "FP32": "i"}.get(one[1])
    if form is None or one[:3] != two[:3] or one[4] != two[4]:
        return False
    numbers = [struct.unpack(f"<{len(each[3]) // struct.calcsize(form)}{form}", each[3]) for each in (one, two)]
    return all(abs(a - b) <= 2 for a, b in zip(*numbers, strict=True))


def _is_stricter(ours: Answer, theirs: Answer) -> bool:
    return theirs.status in _ANSWERED and ours.status in _OUR_REFUSALS


def _both_answer(ours: Answer, theirs: Answer) -> bool:
    return theirs.status in _ANSWERED and ours.status in _ANSWERED


DIFFERENCES: dict[str, Differs] = {
    "what the client did wrong is 4xx here, with the field; Triton calls it a failure of its own": _clients_mistake,
    "a number that does not fit its datatype is refused; Triton takes its lower bits": _out_of_range,
    "a timeout below zero is refused; Triton takes it for a very long one": _negative_timeout,
    "raw contents that belong to no input are refused, as over REST; Triton passes over them": _too_many_contents,
    "an empty body is no JSON; Triton runs the model with empty inputs": _empty_body,
    "a region without its size is invalid, as over gRPC; Triton looks for the region first": _no_size,
    "Inference-Header-Content-Length is digits only; Triton takes what the C library reads": _no_number,
    "what is no JSON object says nothing about loading; Triton passes over it": _no_object,
    "data for a shape that has no elements is refused; Triton passes over it": _more_than_nothing,
    "a version is digits only; Triton takes what the C library reads": _odd_version,
    "a body that is not compressed as it says is refused; Triton reads it as an empty one": _not_compressed,
    "names of content codings are the same in capitals (RFC 9110); Triton does not compress": _other_case,
    "numbers in JSON are read exactly; Triton's last digit may differ": _last_digit,
}  # fmt: skip
