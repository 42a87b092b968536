"""A wrong feed is answered with what is right and how to get there; a right one is taken as it is."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Model, Runtime
from tests.runtime_lite.bundles import random_chunks, truth_of_plain, write_double_bundle

X = random_chunks(1, 2)[0]  # [2, 3, 2]
SHIFT = np.array([1, 2])


def with_nan(value: float) -> Any:
    x = X.copy()
    x[1, 2, 0] = value
    return x


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(write_double_bundle(tmp_path_factory.mktemp("double")))


def strided() -> Any:
    wide = np.zeros((2, 3, 4), np.float32)
    wide[:, :, ::2] = X
    return wide[:, :, ::2]


@pytest.mark.parametrize(
    "x",
    [X, np.asfortranarray(X), strided(), X[:, ::-1][:, ::-1], np.broadcast_to(X[:1, :1], X.shape), X.view(np.memmap)],
    ids=["plain", "fortran", "strided", "reversed", "broadcast", "memmap"],
)
def test_any_memory_layout_is_accepted(model: Model, x: Any) -> None:
    output = model.run({"x": x, "shift": SHIFT}, graph="plain")["y"]
    np.testing.assert_allclose(output, truth_of_plain(np.array(x), SHIFT), atol=2e-6)


def test_a_read_only_array_is_accepted(model: Model) -> None:
    frozen = X.copy()
    frozen.setflags(write=False)
    model.run({"x": frozen, "shift": SHIFT}, graph="plain")


WRONG = {
    "nothing": ({}, "expected the inputs 'x', 'shift', got no 'x'; add 'x', float32 of shape [batch, frames, 2]"),
    "not a mapping": ([X], "expected a mapping of input names to arrays, got a list; write {'name': array}"),
    "missing": ({"x": X}, "got no 'shift'; add 'shift', int64 of shape [batch]"),
    "misspelt": ({"x": X, "shfit": SHIFT}, "got unknown input 'shfit'; did you mean 'shift'?"),
    "wrong case": ({"X": X, "shift": SHIFT}, "got unknown input 'X'; did you mean 'x'?"),
    "extra": ({"x": X, "shift": SHIFT, "noise": X}, "got unknown input 'noise'; leave it out"),
    "name not a text": ({"x": X, "shift": SHIFT, 7: X}, "got unknown input 7; leave it out"),
    "list": ({"x": X.tolist(), "shift": SHIFT}, "got list; convert it with numpy.asarray(x, numpy.float32)"),
    "none": (
        {"x": None, "shift": SHIFT},
        "'x': expected a NumPy array, float32 of shape [batch, frames, 2], got NoneType",
    ),
    "scalar": ({"x": X, "shift": np.int64(1)}, "got numpy.int64; convert it with numpy.asarray(shift, numpy.int64)"),
    "masked": ({"x": np.ma.masked_array(X), "shift": SHIFT}, "got numpy.ma.MaskedArray; convert it"),
    "float64": (
        {"x": X.astype(np.float64), "shift": SHIFT},
        "expected float32 of shape [batch, frames, 2], got dtype float64; convert it with x.astype(numpy.float32)",
    ),
    "float16": (
        {"x": X.astype(np.float16), "shift": SHIFT},
        "got dtype float16; convert it with x.astype(numpy.float32)",
    ),
    "int32": ({"x": X, "shift": SHIFT.astype(np.int32)}, "got dtype int32; convert it with shift.astype(numpy.int64)"),
    "object": ({"x": X.astype(object), "shift": SHIFT}, "got dtype object; convert it with x.astype(numpy.float32)"),
    "text": ({"x": X.astype(str), "shift": SHIFT}, "got dtype <U"),
    "byte order": ({"x": X.astype(">f4"), "shift": SHIFT}, "got dtype >f4; convert it with x.astype(numpy.float32)"),
    "rank": (
        {"x": X[0], "shift": SHIFT},
        "expected 3 dimensions [batch, frames, 2], got 2 dimensions [3, 2]; add the missing axis",
    ),
    "rank above": ({"x": X[None, None], "shift": SHIFT}, "got 5 dimensions [1, 1, 2, 3, 2]; reshape it"),
    "fixed size": (
        {"x": X[:, :, :1], "shift": SHIFT},
        "expected size 2 on axis 2 of [batch, frames, 2], got 1; feed exactly 2",
    ),
    "bucket": (
        {"x": X[:, :1], "shift": SHIFT},
        "expected one of the sizes 2, 3 on axis 1 of [batch, frames, 2], got 1; feed a size that was built",
    ),
    "over-length": ({"x": np.concatenate([X, X], 1), "shift": SHIFT}, "expected one of the sizes 2, 3 on axis 1"),
    "no rows": ({"x": X[:0], "shift": SHIFT[:0]}, "expected at least 1 row on axis 0 of [batch, frames, 2], got 0"),
    "no frames": ({"x": X[:, :0], "shift": SHIFT}, "expected one of the sizes 2, 3 on axis 1"),
    "too many rows": (
        {"x": np.concatenate([X, X, X]), "shift": np.arange(6)},
        "expected at most 4 rows on axis 0 of [batch, frames, 2] (buckets 1, 4), got 6; split the feed",
    ),
    "unequal rows": (
        {"x": X, "shift": SHIFT[:1]},
        "'shift': expected size 2 on axis 0 of [batch] like 'x', got 1; feed the same size on axis 'batch' everywhere",
    ),
    "nan": ({"x": with_nan(np.nan), "shift": SHIFT}, "expected finite values, got nan at [1, 2, 0] (1 such values)"),
    "inf": ({"x": with_nan(-np.inf), "shift": SHIFT}, "expected finite values, got -inf at [1, 2, 0]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_feed_is_refused_with_the_cure(model: Model, case: str) -> None:
    feeds, sentence = WRONG[case]
    with pytest.raises(BadInput) as refusal:
        model.run(feeds, graph="plain")  # type: ignore[arg-type]
    message = str(refusal.value)
    assert message.startswith("plain.run: ")
    assert sentence in message
    assert "\n" not in message
    assert not message.endswith(".")


@pytest.mark.parametrize(("name", "role"), [("keys", "state"), ("real_length", "length"), ("mask", "mask")])
def test_what_the_runtime_fills_cannot_be_fed(model: Model, name: str, role: str) -> None:
    with model.open_stream("streaming") as stream, pytest.raises(BadInput) as refusal:
        stream.push({"x": X[:1], name: np.zeros(1)})
    expected = (
        f"streaming.push: expected only the inputs 'x', got {name!r} (role {role}); leave it out, the runtime fills it"
    )
    assert str(refusal.value) == expected
