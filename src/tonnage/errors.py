"""Every error that Tonnage raises on purpose.

    TonnageError                 exit 1, HTTP 500
    |-- UsageError               exit 2, HTTP 400   the request itself is wrong
    |   |-- InvalidFile          exit 2, HTTP 422   a file does not say what it should
    |   |-- Refused              exit 2, HTTP 403   a label that is not to be trusted, or not for this program
    |-- DoesNotFit               exit 3, HTTP 422   the answer is "no": too little memory, infeasible
    |-- NotFound                 exit 4, HTTP 404   no such GPU, file, trace
    |-- Unreachable              exit 5, HTTP 503   an engine or a server does not answer
    |-- MissingDependency        exit 1, HTTP 501   an optional package is needed
    |-- CaptureError             exit 1, HTTP 422   the program could not be followed
    |-- ProgramFailed            exit 1, HTTP 422   the program itself failed; its own exit code is kept

Each carries one sentence and, where there is one, a hint that says what to do next.
"""

from typing import ClassVar


class TonnageError(Exception):
    """Base of all errors meant for users: one sentence, and a hint."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TonnageError):
    """The request contradicts itself or names an impossible value."""

    exit_code, http_status = 2, 400


class InvalidFile(UsageError):
    """A file cannot be read as what it should be; the message names file, line and field."""

    http_status = 422


class Refused(UsageError):
    """Something that must not be acted upon: a label nobody known has signed, or one that was used already."""

    http_status = 403


class DoesNotFit(TonnageError):
    """No listed GPU can hold the program."""

    exit_code, http_status = 3, 422


class NotFound(TonnageError):
    """Something named by the user does not exist."""

    exit_code, http_status = 4, 404


class Unreachable(TonnageError):
    """An engine, a driver or a server does not answer."""

    exit_code, http_status = 5, 503


class MissingDependency(TonnageError):
    """An optional package is needed for this."""

    http_status = 501


class CaptureError(TonnageError):
    """The program could not be followed; the message names the line and the reason."""

    http_status = 422


class ProgramFailed(TonnageError):
    """The user's program failed by itself; what it said is shown, and its exit code is ours."""

    http_status = 422

    def __init__(self, message: str, hint: str = "", *, exit_code: int = 1) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code  # type: ignore[misc]  # of this one failure
