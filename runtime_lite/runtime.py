"""The runtime: owns the device and the models loaded on it.

Loading checks a bundle as a whole. The session of a bucket is opened at its first use and kept. Closing the runtime
closes every model and with it every stream.
"""

import os
from types import TracebackType

from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import ExecutorFactory, make_executor, make_trusted_executor
from runtime_lite.format.reader import read_bundle
from runtime_lite.model import Model

MAX_THREADS = 1024


class Runtime:
    """Loads bundles and runs them; best used in a `with` block.

    Args:
        threads: threads that one run may use.
        check_finite: refuse feeds that hold NaN or infinity.
    """

    def __init__(self, threads: int = 1, check_finite: bool = True) -> None:
        """Check the options.

        Raises:
            BadInput: `threads` is not a positive integer, or `check_finite` not a boolean.
        """
        if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
            raise BadInput(
                f"Runtime: expected threads from 1 to {MAX_THREADS}, got {show(threads)}; "
                f"this machine has {os.cpu_count()} cores"
            )
        if type(check_finite) is not bool:
            raise BadInput(
                f"Runtime: expected check_finite as True or False, got {show(check_finite)}; give one of them"
            )
        self._threads = threads
        self._check_finite = check_finite
        self._models: list[Model] = []
        self._closed = False

    def load(
        self,
        path: str | os.PathLike[str],
        executors: ExecutorFactory = make_executor,
        allow_host_code: bool = False,
    ) -> Model:
        """Open and check a bundle.

        Args:
            path: bundle directory or `.tar` file.
            executors: makes what runs a graph; by default what it was built for.
            allow_host_code: let engines run code that they carry, with the caller's rights; refused unless the caller
                says so here, whatever the bundle says. Only for a bundle whose maker is trusted.

        Raises:
            BadInput: there is nothing at the path, an argument is of another type, or the runtime is closed.
            BundleRefused: the bundle is truncated, altered, hostile, of an unknown version, or engines carry code.
            EngineAbsent: an engine is not built, or what runs it is not on this machine.
        """
        self._check_open("load")
        if not callable(executors):
            raise BadInput(f"Runtime.load: expected executors as a function, got {show(executors)}; leave it out")
        if type(allow_host_code) is not bool:
            raise BadInput(
                f"Runtime.load: expected allow_host_code as True or False, got {show(allow_host_code)}; leave it out"
            )
        if allow_host_code and executors is make_executor:
            executors = make_trusted_executor
        bundle = read_bundle(path)
        try:
            model = Model(bundle, self._threads, self._check_finite, executors)
        except BaseException:
            bundle.close()
            raise
        self._models = [*(known for known in self._models if not known.closed), model]
        return model

    def close(self) -> None:
        """Close every model; a second call does nothing."""
        self._closed = True
        while self._models:
            self._models.pop().close()

    def __enter__(self) -> "Runtime":
        """Return the runtime.

        Raises:
            BadInput: it is closed.
        """
        self._check_open("__enter__")
        return self

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise BadInput(f"Runtime.{what}: expected an open runtime, got a closed one; make another Runtime")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runtime."""
        self.close()
