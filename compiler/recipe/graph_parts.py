"""Defines the records that declare a graph in a recipe: its source, its inputs, its axes, its passes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from compiler.recipe.field_types import Dtype, FilePath, Name, ObjectName, Positive, Record, TensorName, disagree
from compiler.recipe.written_numbers import fault_of_constant
from runtime_lite.format.arrays import holds

CACHE_DEFAULTS = {"length_input": "real_length", "update": "replace"}
"""Of a window; an axis with buckets has a length input only where the recipe asks for it."""


class Source(Record):
    """Where a graph comes from: a factory of a torch module (with its checkpoint), or an ONNX file.

    Attributes:
        factory: callable that returns the `torch.nn.Module`.
        arguments: the factory's arguments, by name; nothing where it is left out.
        onnx: path of an ONNX file.
        checkpoint: path of the weights the factory's module loads; None keeps the factory's own.
        files: files and folders that the factory reads by itself; their content is part of the cache key.
        cast: whether weights of another type than the module's are converted; refused otherwise.
    """

    factory: ObjectName | None = None
    arguments: dict[Name, Any] = Field(default_factory=dict)
    onnx: FilePath | None = None
    checkpoint: FilePath | None = None
    files: tuple[FilePath, ...] = ()
    cast: bool = False

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.factory is None) == (self.onnx is None):
            got = "neither" if self.factory is None else "both"
            raise disagree(f"expected one of factory and onnx, got {got}", "name where the graph comes from")
        if self.onnx is not None and self.arguments:
            cure = "delete the key; an ONNX file is what it is"
            raise disagree("expected no arguments beside onnx, got some", cure, "arguments")
        if self.onnx is not None and self.checkpoint is not None:
            cure = "delete the key; an ONNX file holds its own weights"
            raise disagree("expected no checkpoint beside onnx, got one", cure, "checkpoint")
        if self.cast and self.checkpoint is None:
            cure = "delete the key, or name the checkpoint that is to be converted"
            raise disagree("expected a checkpoint beside cast, got none", cure, "cast")
        return self


class Latency(Record):
    """Which of several latencies of one model a graph is; callers choose by name when they open a stream.

    A graph with `latencies` is written out as a graph for each of them, which have this key.

    Attributes:
        of: the name that the model's graphs share.
        name: of the latency.
    """

    of: Name
    name: Name


class Input(Record):
    """One graph input, in the order of the module's `forward`.

    Attributes:
        shape: sizes and axis names, e.g. `[batch, cache, 256]`.
        dtype: element type.
        state: name of the output whose value is fed back here by the next call; None for data.
        initial: what the state holds when a stream begins, if it is not 0: a number for all entries, lists as deep as
            the shape that the model takes, 1 for the batch and for any axis along which all are alike, or the path of
            a `.npy` file of such an array; None of a state along a window, which begins with no frames.
        mask_of: the padded axis of which the model takes a mask here, 1 at valid places; made from the lengths.
        pad_mask_of: the same of a mask that is 0 at valid places and anything else where there is padding, as torch's
            `key_padding_mask` is, of truths or of numbers that are added to scores.
        length_of: the padded axis whose true length the model takes here; it becomes the axis' length input.
        counts: the axis whose frames of all calls before are counted here, from 0 at the start of a stream: a window,
            or an axis of the chunk; nobody feeds it. None for an offset that callers feed as data.
        original: the shape that the original takes, where it is written for one row: `shape` without its batch axis, or
            with a 1 for it anywhere; or with the batch axis elsewhere. None where the original has it in front.
        range: the smallest and the largest number that callers feed, all of which must have entries in the tables that
            they are looked up in; None takes them from the data, and of such whole numbers those that have entries.
        example: the number that is tried where no data are drawn, as `explain` draws none; None takes numbers of the
            range, or normal ones, and 1 of whole ones.
        constant: what the model is given here in every call, and nobody feeds: the input is no input of the bundle. A
            number for all entries, lists as deep as the shape, or the path of a `.npy` file; None where it is fed.
    """

    shape: tuple[Positive | Name, ...]
    dtype: Dtype
    state: TensorName | None = None
    initial: bool | int | float | FilePath | tuple[Any, ...] | None = None
    mask_of: Name | None = None
    pad_mask_of: Name | None = None
    length_of: Name | None = None
    counts: Name | None = None
    original: tuple[Positive | Name, ...] | None = None
    range: tuple[float, ...] | None = None
    example: float | None = None
    constant: bool | int | float | FilePath | tuple[Any, ...] | None = None

    @pydantic.model_validator(mode="after")
    def _hold_constant(self) -> Self:
        if self.constant is None:
            return self
        other = next((key for key in FED_KEYS if getattr(self, key) is not None), None)
        if other is not None:
            message = f"expected nothing beside constant that says what is fed, got {other}"
            raise disagree(message, "keep one of the two", "constant")
        if axes := [dim for dim in self.shape if isinstance(dim, str)]:
            message = f"expected numbers in the shape of a constant, got {axes[0]!r}"
            cure = "write its sizes; what the model takes for every row is one constant, as in shape: [1]"
            raise disagree(message, cure, "shape")
        if not isinstance(self.constant, str):
            fault = fault_of_constant(self.constant, self.shape, self.dtype)
            if fault is not None:
                raise disagree(*fault, "constant")
        return self

    @pydantic.model_validator(mode="after")
    def _hold_range(self) -> Self:
        if self.range is None:
            return self
        if len(self.range) != 2:
            cure = "write the smallest and the largest that callers feed"
            raise disagree(f"expected two numbers, got {len(self.range)}", cure, "range")
        low, high = self.range
        if not self.is_data or self.dtype == "bool":
            kind = "a state, count, mask or length" if self.dtype != "bool" else "truth values"
            raise disagree(f"expected a range for numbers that callers feed, got one for {kind}", "delete it", "range")
        if low > high:
            raise disagree(f"expected the smaller number first, got [{low:g}, {high:g}]", "swap them", "range")
        if self.dtype.startswith(("int", "uint")) and not (low.is_integer() and high.is_integer()):
            raise disagree(f"expected whole numbers for {self.dtype}, got [{low:g}, {high:g}]", "round them", "range")
        return self

    @pydantic.model_validator(mode="after")
    def _hold_example(self) -> Self:
        if self.example is None:
            return self
        got = f"{self.example:g}"
        if not self.is_data:
            kind = "a state, count, mask or length, which begins as the stream does"
            raise disagree(f"expected an example of what callers feed, got one of {kind}", "delete it", "example")
        if not holds("float32" if self.dtype == "bfloat16" else self.dtype, self.example):
            raise disagree(f"expected a number that {self.dtype} has, got {got}", "write one that it has", "example")
        if self.range is not None and not self.range[0] <= self.example <= self.range[1]:
            message = f"expected a number from {self.range[0]:g} to {self.range[1]:g}, the declared range, got {got}"
            raise disagree(message, "write one that callers feed", "example")
        return self

    @property
    def is_data(self) -> bool:
        """Whether callers feed the input."""
        return not self.is_carried and self.mask_axis is None and self.length_of is None and self.constant is None

    @property
    def mask_axis(self) -> str | None:
        """Return the axis of which the input is a mask, of either kind; None for other inputs."""
        return self.mask_of if self.mask_of is not None else self.pad_mask_of

    def without_padding(self, sizes: Mapping[str, int]) -> int | None:
        """Return the number that a mask or length holds everywhere without padding; None for other inputs.

        Args:
            sizes: lengths of axes, by name; 1 for others.
        """
        if self.length_of is not None:
            return sizes.get(self.length_of, 1)
        return None if self.mask_axis is None else int(self.pad_mask_of is None)

    @property
    def is_carried(self) -> bool:
        """Whether calls of a stream hand the input to the next."""
        return self.state is not None or self.counts is not None

    @property
    def row_axis(self) -> int | None:
        """Return the axis of `original` that is the batch, or a 1 in its place; None where it has none."""
        original = list(self.original or ())
        rest, rows = list(self.shape[1:]), (1, self.shape[0])
        if original == rest:
            return None
        places = (i for i, size in enumerate(original) if size in rows and original[:i] + original[i + 1 :] == rest)
        return next(places)


FED_KEYS = ("state", "initial", "mask_of", "pad_mask_of", "length_of", "counts", "original", "range", "example")
"""What says of an input how it is fed."""


class Axis(Record):
    """How a named axis becomes static: one size, a few sizes, or a window of valid slots.

    Attributes:
        fixed: the size.
        buckets: the sizes to build for, ascending.
        window: slots of a cache axis; the valid ones are counted at run time.
        length_input: graph input that holds the number of valid slots. A window has one; buckets have one when every
            row is to have a length of its own, valid entries first. At most one axis with buckets has none: the batch.
        mask_input: graph input that holds 1 for valid slots and 0 for free ones; None computes it inside the graph.
        update: of a window, how states along it become the next: `replace`, by the output, which is the whole cache;
            `append`, by the output behind the cache, where the model gives its new frames alone. None is `replace`.
    """

    fixed: Positive | None = None
    buckets: tuple[Positive, ...] | None = None
    window: Positive | None = None
    length_input: TensorName | None = None
    mask_input: TensorName | None = None
    update: Literal["replace", "append"] | None = None

    @property
    def gives_new_frames(self) -> bool:
        """Whether the model returns only the new frames of a window."""
        return self.update == "append"

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill_cache(cls, given: Any) -> Any:
        """Add the default length input and update to a window."""
        if not isinstance(given, dict) or given.get("window") is None:
            return given
        return {**given, **{key: each for key, each in CACHE_DEFAULTS.items() if given.get(key) is None}}

    @pydantic.model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in ("fixed", "buckets", "window") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise disagree(
                f"expected one of fixed, buckets and window, got {' and '.join(kinds) or 'none'}",
                "give each axis one kind",
            )
        if (self.buckets is not None and list(self.buckets) != sorted(set(self.buckets))) or self.buckets == ():
            fixed = sorted(set(self.buckets or ())) or [1]
            raise disagree(f"expected ascending distinct buckets, got {list(self.buckets or ())}", f"write {fixed}")
        if self.fixed is not None and self.length_input is not None:
            raise disagree("expected length_input on buckets or a window, got it on a fixed axis", "delete the key")
        for key in ("mask_input", "update"):
            if self.window is None and getattr(self, key) is not None:
                raise disagree(f"expected {key} on a window axis only, got it on a {kinds[0]} axis", "delete the key")
        if self.length_input is not None and self.length_input == self.mask_input:
            raise disagree(
                "expected different names for length_input and mask_input, got one name", "rename one of them"
            )
        return self


class DeriveSteps(Record):
    """Derives the caches by which a model of whole sequences is called chunk by chunk.

    Attributes:
        along: the axis of time, in the shapes of the inputs; it has buckets and a length_input, and counts the frames
            of a call: many of a prompt, one of a step.
        window: frames of the longest stream: slots of the caches.
        chunk: frames that may read each other, where masks are of whole chunks. A call is of one or several; a shorter
            one is the last of its stream.
        forget: whether caches keep no more frames than masks show that slide along; streams then go on without end
            where that is proved of sequences of any length.
    """

    along: Name
    window: Positive
    chunk: Positive = 1
    forget: bool = False


class ShareHeads(Record):
    """Heads that share keys and values: the checkpoint is changed, and trained on, before anything is captured.

    What is built then is held to the changed model, and `limit` says how far that may be from the original. The feeds
    of `data.distillation` are what it is measured and trained on.

    Attributes:
        groups: heads of keys and values that stay in every attention.
        updates: most updates of the training; with 0 the checkpoint is changed in closed form alone.
        minutes: longest duration of the training, by the clock, over all builds that were stopped and go on.
        rows: sequences per update.
        rate: highest learning rate, of AdamW.
        seed: seed of the random draws.
        answers: what the outputs are: `classes`, scores along the last axis; or `numbers`.
        skip: frames at the start of a sequence whose answers do not count.
        limit: how far the answers may be from the original's, on every tenth stream of the feeds, which are kept apart:
            nats of divergence for classes, share of power for numbers.
    """

    groups: Positive
    updates: Annotated[int, Field(ge=0)] = 2000
    minutes: Annotated[float, Field(gt=0)] = 20.0
    rows: Positive = 16
    rate: Annotated[float, Field(gt=0)] = 1e-3
    seed: Annotated[int, Field(ge=0)] = 1
    answers: Literal["classes", "numbers"]
    skip: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[float, Field(gt=0)]


class PassSpec(Record):
    """One pass of a graph's pipeline; written `- name`, or `- name: {option: value}`.

    Attributes:
        name: a pass; `standard` stands for the standard ones.
        options: by name; each pass has its own.
    """

    name: Name
    options: dict[str, Any] = Field(default_factory=dict)
