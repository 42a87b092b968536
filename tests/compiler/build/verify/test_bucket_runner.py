"""A chunk runs in the artefact of its bucket, or in the next one that holds it."""

import numpy as np

from compiler.build.verify.bucket_runner import BucketRunners
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import session_of
from compiler.targets.base import Emitted
from tests.kit.short_chunks import captured, chunk, frozen, padded

SIZES = [(rows, slots) for rows in (1, 2) for slots in (2, 4)]


def test_chunks_run_in_the_smallest_graph_that_holds_them_and_no_smaller_one_than_asked() -> None:
    lowered = padded()
    opened: list[str] = []
    artifacts = [Emitted({"batch": rows, "chunk": slots}, f"{rows}.{slots}", (), lowered) for rows, slots in SIZES]

    def open_file(file: str) -> object:
        opened.append(file)
        rows, slots = map(int, file.split("."))
        return session_of(frozen(lowered, rows, slots))

    runners = BucketRunners(lowered, artifacts, open_file)  # type: ignore[arg-type]
    runner, original = runners.runner(artifacts[0]), runner_of(captured())
    assert opened == ["1.2", "1.4"]
    for seed, length in enumerate((1, 4, 2, 3)):
        np.testing.assert_allclose(
            runner.step(chunk(length, seed))["logits"],
            original.step(chunk(length, seed))["logits"],
            rtol=1e-5,
            atol=1e-5,
        )
    assert [bucket["chunk"] for bucket in runners.runner(artifacts[1]).chunks.buckets] == [4]
    assert [runners.rows(each) for each in artifacts] == [1, 1, 2, 2]
