"""Why a program cannot be followed on the virtual GPU."""


class VirtualGpuError(RuntimeError):
    """Raised inside the user's program; the capture turns it into one sentence with the user's line."""


class DataDependent(VirtualGpuError):
    """The program's course depends on values that only a real GPU could compute."""


class Unsupported(VirtualGpuError):
    """The program uses something that the virtual GPU does not imitate."""
