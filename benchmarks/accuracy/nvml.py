"""Asks the driver how much memory of GPU 0 is in use, without a CUDA context (which would itself use memory)."""

import ctypes


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The driver's management library through ctypes, so that no package has to be installed on the GPU machine."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self._library.nvmlInit_v2())
        self._handle = ctypes.c_void_p()
        self._check(self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle)))

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            raise OSError(f"NVML answered {status}")

    def used_bytes(self) -> int:
        memory = _Memory()
        self._check(self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)))
        return int(memory.used)

    def __call__(self) -> int:
        """Energy since the driver was loaded, in millijoules."""
        energy = ctypes.c_ulonglong()
        self._check(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(energy)))
        return int(energy.value)

    def clock(self) -> int:
        """MHz of the multiprocessors right now."""
        clock = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetClockInfo(self._handle, 1, ctypes.byref(clock)))
        return int(clock.value)

    def driver(self) -> str:
        text = ctypes.create_string_buffer(96)
        self._check(self._library.nvmlSystemGetDriverVersion(text, len(text)))
        return text.value.decode()


def open_nvml() -> Nvml | None:
    """None on a machine without an NVIDIA driver."""
    try:
        return Nvml()
    except OSError:
        return None
