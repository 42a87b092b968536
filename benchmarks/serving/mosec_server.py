"""A mosec server of streams in a process of its own, with one worker that keeps the states of its streams.

    python -m benchmarks.serving.mosec_server --port 8000

The environment variable `SETTINGS_VARIABLE` has the path of its settings, because mosec starts the workers.
"""

from mosec import Server, Worker

from benchmarks.serving.mosec_streams import HeldStreams


class StreamSteps(Worker):  # type: ignore[misc, unused-ignore]
    """Runs the next chunk of all streams that mosec has gathered."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = HeldStreams()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        """Run the chunks; answers are empty, as those of the other servers."""
        self._streams.step(data)
        return [b""] * len(data)


if __name__ == "__main__":
    server = Server()
    batches = HeldStreams.settings()
    server.append_worker(StreamSteps, num=1, max_batch_size=batches["most"], max_wait_time=batches["window_ms"])
    server.run()
