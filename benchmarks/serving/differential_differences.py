"""Where this server answers otherwise than Triton on purpose, each with its reason."""

from collections.abc import Callable

from differential_answers import Answer
from differential_grpc import GrpcRequest
from differential_rest import RestRequest

Case = RestRequest | GrpcRequest
Differs = Callable[[Case, Answer, Answer], bool]
DIFFERENCES: dict[str, Differs] = {}


def expected(case: Case, ours: Answer, theirs: Answer) -> str:
    """The reason, or "" where there is none."""
    return next((reason for reason, differs in DIFFERENCES.items() if differs(case, ours, theirs)), "")
