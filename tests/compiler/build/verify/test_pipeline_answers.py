"""The originals of wired graphs are fed with what those before them gave, by the names that callers use."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compiler.build.verify.pipeline_answers import answers_of_originals, together
from runtime_lite import Runtime
from tests.runtime_lite.bundles import (
    random_chunks,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_wired_bundle,
)


@dataclasses.dataclass
class Stand:
    """Stands for an original; remembers what it was fed."""

    answer: Any
    fed: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def run(self, feeds: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        self.fed = [dict(feed) for feed in feeds]
        return ((outputs, {}) for outputs in self.answer(self.fed))


def test_each_original_runs_a_whole_stream_on_what_those_before_it_gave(tmp_path: Path) -> None:
    chunks = random_chunks(4)
    stream = [
        {"x": chunk, "shift": np.array([at]), "tokens": np.full((1, 3), at % 3)} for at, chunk in enumerate(chunks)
    ]
    stands = {
        "streaming": Stand(lambda fed: [{"y": y} for y, _ in truth_of_stream(np.stack([f["x"] for f in fed]))]),
        "plain": Stand(lambda fed: [{"y": truth_of_plain(f["x"], f["shift"])} for f in fed]),
        "ragged": Stand(
            lambda fed: [dict(zip(("y", "mean"), truth_of_ragged(f["x"], f["tokens"]), strict=True)) for f in fed]
        ),
    }
    originals: Any = {name: _Only(stand.run) for name, stand in stands.items()}
    with Runtime() as runtime:
        model = runtime.load(write_wired_bundle(tmp_path / "bundle"))
        expected = list(answers_of_originals(together(model), originals, stream))
        with model.open_stream() as live:
            for feed, wanted in zip(stream, expected, strict=True):
                got = live.push(feed)
                assert list(got) == list(wanted)
                for name, array in wanted.items():
                    np.testing.assert_allclose(got[name], array, rtol=0.0, atol=2e-5)
    assert [sorted(feed) for feed in stands["plain"].fed] == [["shift", "x"]] * 4
    assert [sorted(feed) for feed in stands["ragged"].fed] == [["tokens", "x"]] * 4


@dataclasses.dataclass
class _Only:
    """As much of an `OriginalGraph` as is looked at."""

    run: Any
