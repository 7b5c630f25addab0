"""The numbers that describe a sample network: each has limits, a default, and a scale on which it is spread."""

from dataclasses import dataclass

from tonnage.errors import UsageError
from tonnage.hardware.catalogue import nearest

Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One thing about a network that can be changed alone: a whole number between limits, or one of `choices`."""

    name: str
    default: Value
    help: str
    low: int = 0
    high: int = 0
    choices: tuple[Value, ...] = ()
    scale: str = "log"  # or "linear": how values are spread when they are chosen
    multiple: int = 1  # of which values must be multiples
    linear: str = ""  # when the parameter count is a linear function of this number; empty if it is not meant to be

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            return ", ".join(str(choice) for choice in self.choices)
        steps = f" in steps of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.low} to {self.high}{steps}"

    def check(self, value: object, owner: str = "") -> Value:
        """The value itself; raises `UsageError` if it is not allowed."""
        if self._allows(value):
            assert isinstance(value, int | str)
            return value
        of = f" of {owner}" if owner else ""
        raise UsageError(f"{self.name}{of} must be {self._wanted()}, not {value!r:.40}", self._hint(value))

    def _allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return False
        if self.choices:
            return value in self.choices
        return isinstance(value, int) and self.low <= value <= self.high and value % self.multiple == 0

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {self.allowed}" if len(self.choices) > 1 else self.allowed
        return f"a whole number from {self.allowed}"

    def _hint(self, value: object) -> str:
        meant = nearest(str(value), [choice for choice in self.choices if isinstance(choice, str)])
        return f"did you mean {meant}?" if meant else ""
