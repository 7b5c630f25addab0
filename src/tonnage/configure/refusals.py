"""Why a label is not deployed: one class and one sentence for each reason.

Refused                     (tonnage.errors) exit 2, HTTP 403
|-- MalformedLabel          it is no label, or not written as a label is written
|-- UnknownServer           nobody has said that this server is to be trusted
|-- BadSignature            it is not what the server has signed
|-- NotYetValid             issued in the future: a clock is wrong
|-- Expired
|-- Replayed                deployed already
|-- OtherProgram            the program is not the one that was profiled
"""

from tonnage.errors import Refused


class MalformedLabel(Refused):
    """Not a label, or not written as a label is written."""


class UnknownServer(Refused):
    """The label names a server that is not on the list."""


class BadSignature(Refused):
    """Not what the server has signed."""


class NotYetValid(Refused):
    """Issued in the future."""


class Expired(Refused):
    """Too old."""


class Replayed(Refused):
    """Deployed already."""


class OtherProgram(Refused):
    """The program is another one, or has changed since."""
