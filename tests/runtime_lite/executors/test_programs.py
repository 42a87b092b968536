"""Programs of a graph are opened at the first use of their bucket, once, and dropped together."""

from pathlib import Path

from runtime_lite import read_bundle
from runtime_lite.executors.programs import ProgramExecutor
from runtime_lite.format.manifest import Artifact
from tests.runtime_lite.engines import write_engine_bundle


class Noted(ProgramExecutor[str]):
    """Notes what it opens."""

    def _open(self, artifact: Artifact) -> str:
        self.opened = [*getattr(self, "opened", ()), artifact.file]
        return artifact.file

    def use(self, bucket: str) -> str:
        with self._lock:
            return self._program(bucket)


def test_a_program_is_opened_once_for_its_bucket(tmp_path: Path) -> None:
    with read_bundle(write_engine_bundle(tmp_path / "bundle")) as bundle:
        executor = Noted(bundle, "plain", 1)
        buckets = ("batch=1,frames=2", "batch=4,frames=3", "batch=1,frames=2")
        files = [f"graphs/plain.{name}.onnx" for name in ("batch1.frames2", "batch4.frames3", "batch1.frames2")]
        assert [executor.use(bucket) for bucket in buckets] == files
        assert executor.opened == files[:2]
        executor.close()
        executor.use(buckets[0])
        assert executor.opened == [*files[:2], files[0]]
