"""The original of derived steps: it is given everything heard so far, and refuses what no cache holds."""

import numpy as np
import pytest

from compiler.capture.derived_steps import derived_model, with_caches
from compiler.capture.prefix_reference import PrefixReference
from compiler.errors import DataError
from tests.compiler.capture.test_derived_steps import WINDOW, spec
from tests.kit.whole_sequences import LABELS, Drawing, session, whole_graph


def reference() -> PrefixReference:
    derived = derived_model(whole_graph(Drawing()), "net", spec())
    return PrefixReference("net", with_caches(spec(), derived.model), derived.whole, None)


def test_calls_answer_the_frames_of_the_call_and_keep_all_that_was_heard() -> None:
    tokens = np.random.default_rng(0).integers(0, LABELS, (1, 7))
    expected = session(whole_graph(Drawing())).run(["scores"], {"tokens": tokens})[0]
    feeds = [{"tokens": tokens[:, :4]}, {"tokens": tokens[:, 4:5]}, {"tokens": tokens[:, 5:]}]
    answers = list(reference().run(feeds))
    assert np.allclose(np.concatenate([outputs["scores"] for outputs, _ in answers], axis=1), expected, atol=1e-6)
    assert [states["cache_01"].shape[2] for _, states in answers] == [4, 5, 7]


def test_more_frames_than_the_window_are_refused() -> None:
    feeds = [{"tokens": np.zeros((1, WINDOW), np.int64)}, {"tokens": np.zeros((1, 1), np.int64)}]
    with pytest.raises(DataError, match=f"at most {WINDOW} frames along 'time'.* got {WINDOW + 1}"):
        list(reference().run(feeds))
