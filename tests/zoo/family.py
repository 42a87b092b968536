"""What the zoo knows about one public architecture: how it is built, what it takes, and why it is here."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

BATCH = "batch"
"""The axis of rows, in every family."""

DEFAULT_SIZES = {BATCH: 2, "time": 13, "source_time": 13, "target_time": 7}
"""Example sizes of families that name none."""

GROUPS = {
    "raw": "speech encoders and codecs on raw audio",
    "mel": "speech encoders on features",
    "pooled": "one answer per utterance",
    "text": "text encoders",
    "causal": "language models",
    "decoder": "decoders with cross-attention",
    "synthesis": "text to speech",
    "vocoder": "vocoders and codec decoders",
    "hazard": "graphs whose rows mix or whose padding shows: to be refused",
}


@dataclasses.dataclass(frozen=True)
class Given:
    """One graph input.

    Attributes:
        shape: sizes and axis names.
        dtype: element type.
        mask_of: the axis of which it is the mask, 1 at valid places.
        length_of: the axis of which it holds the true length.
        below: for indices, the exclusive upper bound.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    mask_of: str | None = None
    length_of: str | None = None
    below: int | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """One architecture in a tiny configuration.

    Attributes:
        name: also the name of its graph's file.
        group: a key of GROUPS.
        build: gives the `torch.nn.Module`; it may need the packages of the extra `zoo`.
        inputs: in the order of `forward`.
        sizes: example sizes by axis, for the exporter.
        least: the smallest lengths with a meaning, by axis; 1 where nothing is said.
        outputs: names in the order of the results.
        lenient: whether the exporter takes the model only when it may choose the ranges of sizes by itself.
        traced: whether the older exporter is used, which records a run; the new one fails.
        stuck: why the model cannot be exported with dynamic axes; empty where it can.
    """

    name: str
    group: str
    build: Callable[[], Any]
    inputs: Mapping[str, Given]
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    least: Mapping[str, int] = dataclasses.field(default_factory=dict)
    outputs: tuple[str, ...] = ("output",)
    lenient: bool = False
    traced: bool = False
    stuck: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        """The named axes of the inputs in order, the batch included."""
        return tuple(
            dict.fromkeys(dim for given in self.inputs.values() for dim in given.shape if isinstance(dim, str))
        )

    @property
    def padded(self) -> tuple[str, ...]:
        """The axes with one length per row."""
        return tuple(axis for axis in self.axes if axis != BATCH)


def tokens(below: int, axis: str = "time", *, mask: bool = True) -> dict[str, Given]:
    """Indices, with their mask."""
    given = {"input_ids": Given((BATCH, axis), "int64", below=below)}
    return {**given, **(masked("attention_mask", axis) if mask else {})}


def features(width: int, *, mask: bool = True) -> dict[str, Given]:
    """Frames [batch, time, width], with their mask."""
    return {"features": Given((BATCH, "time", width)), **(masked("attention_mask", "time") if mask else {})}


def wave(*, mask: bool = False) -> dict[str, Given]:
    """Samples [batch, time], with their mask."""
    return {"wave": Given((BATCH, "time")), **(masked("attention_mask", "time") if mask else {})}


def masked(name: str, axis: str) -> dict[str, Given]:
    """A mask input."""
    return {name: Given((BATCH, axis), "int64", mask_of=axis)}
