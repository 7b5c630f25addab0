"""The four official clients behind one face, so that each test speaks to the server in every way that users do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from server_rig import Served
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

KINDS = ("http", "grpc", "http.aio", "grpc.aio")
# What the transports say of the same mistake.
STATUSES = {
    "400": "StatusCode.INVALID_ARGUMENT", "404": "StatusCode.NOT_FOUND", "500": "StatusCode.INTERNAL",
    "501": "StatusCode.UNIMPLEMENTED", "503": "StatusCode.UNAVAILABLE", "429": "StatusCode.UNAVAILABLE",
}  # fmt: skip


class Client:
    """Any method of an official client, waited for; answers that are messages come as JSON."""

    def __init__(self, kind: str, served: Served) -> None:
        self.kind = kind
        self.is_rest = kind.startswith("http")
        self.module: Any = tritonclient.http if self.is_rest else tritonclient.grpc
        self._loop = asyncio.new_event_loop() if kind.endswith("aio") else None
        module = self.module if self._loop is None else getattr(tritonclient, kind.split(".")[0]).aio
        self._client: Any = self._run(self._made(module, served.http if self.is_rest else served.grpc))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        wants_json = "as_json" in inspect.signature(method).parameters

        def call(*args: Any, **options: Any) -> Any:
            if wants_json:
                options["as_json"] = True
            result = method(*args, **options)
            return self._run(result) if inspect.isawaitable(result) else result

        return call

    def run(self, work: Callable[[Any], Any]) -> Any:
        """What a coroutine function of the client itself returns."""
        return self._run(work(self._client))

    def input(self, name: str, array: np.ndarray, *, datatype: str = "", **options: Any) -> Any:
        """`options` are for REST, which has two ways to send a tensor."""
        made = self.module.InferInput(name, array.shape, datatype or np_to_triton_dtype(array.dtype))
        made.set_data_from_numpy(array, **(options if self.is_rest else {}))
        return made

    def output(self, name: str, **options: Any) -> Any:
        if not self.is_rest:
            options.pop("binary_data", None)
        return self.module.InferRequestedOutput(name, **options)

    def status_of(self, name: str, *args: Any, **options: Any) -> str:
        """Of a call that fails, in the words of REST."""
        try:
            getattr(self, name)(*args, **options)
        except InferenceServerException as error:
            return _rest_status(str(error.status()))
        return "200"

    def close(self) -> None:
        self._run(self._client.close())
        if self._loop is not None:
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    async def _made(self, module: Any, address: str) -> Any:
        return module.InferenceServerClient(address)

    def _run(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        loop = self._loop or asyncio.new_event_loop()
        try:
            return loop.run_until_complete(result)
        finally:
            if self._loop is None:
                loop.close()


@contextmanager
def connected(kind: str, served: Served) -> Iterator[Client]:
    client = Client(kind, served)
    try:
        yield client
    finally:
        client.close()


def random_array(datatype: str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Values of any kind."""
    generator = np.random.default_rng(seed)
    if datatype == "BYTES":
        words = [b"", b"word", "größer".encode(), b"two words", b"x" * 300]
        chosen = [words[place] for place in generator.integers(0, len(words), int(np.prod(shape)))]
        return np.array(chosen, dtype=object).reshape(shape)
    if datatype == "BOOL":
        return generator.integers(0, 2, shape).astype(bool)
    if datatype == "BF16":
        import ml_dtypes  # comes with tritonclient, which takes no other BF16

        return generator.integers(-100, 100, shape).astype(ml_dtypes.bfloat16)
    if datatype.startswith("FP"):
        return generator.normal(size=shape).astype(f"f{int(datatype[2:]) // 8}")
    kind = np.dtype(datatype.lower())
    bounds = np.iinfo(kind)
    return generator.integers(bounds.min, bounds.max, shape, dtype=kind, endpoint=True)


def _rest_status(status: str) -> str:
    return next((rest for rest, other in STATUSES.items() if other == status), status)
