"""Random stateless graphs over whole sequences: attention under masks of many makes, and what makes it no stream.

Every graph is [batch, time] of tokens to scores [batch, time, 13]; before some of them lies a text, which sees itself
and is seen by all. What is drawn is written down in a `Drawing`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

from compiler.graph import model as graphs
from compiler.proof.facts.lengths import infer_settled
from tests.kit.rated_chains import AHEAD, CHAIN_SPOILERS, LINKS, RatedChains
from tests.kit.rated_chains import WIDTH as CHAINED
from tests.kit.single_operators import SINGLES, SingleOperators
from tests.kit.spelled_masks import FAR_MASK_SPOILERS, NEAR_SPOILERS, SpelledMasks

LABELS, WIDTH, HEADS, SIZE = 13, 8, 2, 4
LONGEST = 24
"""Frames of the longest sequence: rows of tables."""

LETTERS = 5
"""Of the longest text."""

HEARD = 7
"""Of the longest memory."""

LARGEST = {"letters": LETTERS, "heard": HEARD}

PADDING = 0
"""The token that hides."""

UNBOUNDED = ("none", "rotary", "sinusoid", "linear_bias", "bucket_bias")
"""Positions that are told of any number of frames."""

SHIFTED = ("moved", "skewed")
"""Scores by distance that are moved into place by pads and reshapes: of all distances, and of those behind alone."""

POSITIONS = (
    "none", "table", "looked_up", "rotary", "linear_bias", "bucket_bias", "counted", "sinusoid", "summed", "picked",
    *SHIFTED,
)  # fmt: skip
MASKS = ("compared", "triangle", "truths", "lower", "table", "band", "offset", "chunks", "counted", "packed")
PREFIX = "prefix"
"""A mask that no drawing has: the first frames see each other."""
CHUNKED = "chunked"
"""A mask under which frames see all of their chunk, and one chunk in front of it."""
RETURNING = "returning"
"""A band that shows frames again, further back than the longest sequence that is asked about."""
HARD_MASKS = ("strict", "behind", "first_by_memory", "band_by_memory")
"""Other masks: under two of them some frame sees nothing, and two change with another axis."""
HIDINGS = ("", "keys", "others", "rows")
"""What padding tokens hide: nothing, themselves from all, themselves from all others, or all from themselves."""
JOINS = ("behind", "before", "truths", "numbers")
"""Where: in scores behind the mask, in those before it, or in the mask, of truths or of numbers."""
WRITINGS = ("select", "add", "factor", "late", "linear", "divided")
LOWS = (-np.inf, float(np.finfo(np.float32).min), -1.0e9)
SPOILERS = (
    "no_mask", "ahead", "mean", "norm", "reversed", "scaled", "from_end", "wrong_axis", "shifted", "future_sum",
    "length_bias", "soft_mask",
)  # fmt: skip
"""What makes a graph no stream, or a stream that looks ahead."""

LOCALS = ("", "conv", "apart", "gru", "lstm", "deep", "chomped", "padded", "moved_back", "joined_back", "cut_back")
"""Nothing, a convolution, one over frames that lie apart, recurrences, two of them from one stack of zeros, a
convolution that is cut, one over zeros in front, and frames that a Pad, a join or a cut moves back."""

BEGUN = ("number", "learnt", "tiled", "picked", "turned", "regrouped")
"""What recurrences begin with, other than zeros: one number, or one learnt row for all rows, spread over them by Expand
or Tile, and cut, picked, turned or regrouped behind it."""

BEGUN_APART = ("by_row", "rows_mixed", "by_length", "of_frames")
"""What they begin with that no stream knows: another row for every row, or what hangs on the length, or on frames."""

LOCAL_SPOILERS = {
    **dict.fromkeys(("conv", "apart", "chomped", "padded"), "conv_ahead"),
    **dict.fromkeys(("gru", "lstm", "deep"), "backwards"),
    **dict.fromkeys(("moved_back", "joined_back", "cut_back"), "moved_ahead"),
}
"""What makes of each a look ahead."""

TEXTS = ("", "fixed", "named")
"""No text, one of a fixed number of letters, or one of any number."""

NOT_BEHIND = ("summed", *SHIFTED)
"""Positions that are refused behind a text."""

JOINED = "joined"
"""A mask of a text and one of the frames behind it, padded to the length of both and put below each other; of frames
alone it is theirs."""

SPELLED = "spelled"
"""A band in one of many spellings."""

CHUNK_SPOILERS = ("chunk_ahead", "chunk_shifted")
"""What lets frames see behind their chunk: the next one, or chunks that begin elsewhere."""

OTHER_SPOILERS = ("no_mask", "mean", "norm", "scaled", "shifted", "future_sum", "soft_mask")
"""What lets frames see later ones besides their mask."""

FAR_SPOILERS = ("far_scaled", "far_turned", "far_cut")
"""What makes scores by distance other ones on sequences of another length."""

TOKENS: Mapping[str, tuple[int, int]] = {
    "plain": (0, LABELS - 1),
    "clamped": (-1, LABELS - 1),
    "replaced": (-100, LABELS - 1),
    "offset": (0, LABELS - 1),
    "shifted": (100, 100 + LABELS - 1),
    "within": (-5, 3 * LABELS),
}
"""How tokens reach their table, and the numbers that callers feed: as they are, or clamped at 0; negative ones as 0; in
two books of one table; counted from 100; or clamped at both ends."""

BEYOND = "beyond"
"""What makes a range one that cannot be: tokens beyond the table."""

RATES = ("", "spread", "repeated", "joined", "flat")
"""What becomes of frames behind the last layer: nothing; several entries of other channels, of the same, or of two
values in turn; or entries for all channels."""

FINE_SPOILERS = ("fine_mean", "fine_share", "fine_moved")
"""What makes entries of several per frame no stream: they know all of them, or the next."""

TEXT_SPOILERS = ("text_hears", "text_behind")
"""What makes a graph with a text no stream."""

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """One graph.

    Attributes:
        positions: how places are told.
        mask: how the mask is made.
        writing: how it masks: scores selected, added to, weights multiplied, weights selected behind the softmax,
            scores that are weights themselves, below the diagonal, or weights that are divided by their sum.
        low: what masked scores become.
        layers: of attention.
        groups: heads of keys and values.
        keys_turned: whether keys are made [batch, heads, size, time] at once.
        einsum: whether products are written so.
        parallel: whether attention and the feed-forward part read one value.
        flat: whether the feed-forward part works on [batch * time, width].
        width: of the band or chunk of the mask.
        spoiler: what makes it no stream, or empty.
        seed: of the weights.
        text: what lies before the frames.
        local: what is in front of every attention: a convolution, or a recurrence.
        forgets: whether steps keep no more frames than sliding masks show.
        hiding: what padding tokens hide besides.
        join: where.
        hidden: what scores become that they hide.
        is_guarded: whether zeros are selected where a softmax gives no number.
        tokens: how they reach their table.
        declared: the range that a recipe tells of them, or None.
        rate: how the result has several entries per frame.
        entries: how many, but for those of all channels.
        is_returned: whether frames with one entry are a result, too.
        begun: what recurrences begin with, or nothing, where it is zeros.
        single: an operator in front of all attention that computes of every frame alone.
        chain: layers behind all attention that make more entries of every frame, and fewer again.
    """

    positions: str = "none"
    mask: str = "compared"
    writing: str = "select"
    low: float = -np.inf
    layers: int = 1
    groups: int = 2
    keys_turned: bool = False
    einsum: bool = False
    parallel: bool = False
    flat: bool = False
    width: int = 3
    spoiler: str = ""
    seed: int = 0
    text: str = ""
    local: str = ""
    forgets: bool = False
    hiding: str = ""
    join: str = "behind"
    hidden: float = -1.0e9
    is_guarded: bool = False
    tokens: str = "plain"
    declared: tuple[int, int] | None = None
    rate: str = ""
    entries: int = 2
    is_returned: bool = False
    begun: str = ""
    single: str = ""
    chain: tuple[str, ...] = ()

    @property
    def has_memory(self) -> bool:
        """Whether there is another input with an axis of its own, by whose length the mask is made."""
        return self.mask.endswith("by_memory")

    @property
    def fed(self) -> tuple[int, int]:
        """The smallest and the largest token that callers feed."""
        return TOKENS[self.tokens]

    @property
    def is_late(self) -> bool:
        """Whether links of the chain read ahead, so that answers come later."""
        return bool(set(AHEAD) & set(self.chain))

    @property
    def chunk(self) -> int:
        """Frames that may read each other."""
        return self.width if self.mask == CHUNKED else 1

    @property
    def longest(self) -> int:
        """Frames of the longest sequence, which tables hold with the text before it."""
        return LONGEST - LETTERS if self.text else LONGEST


def drawn(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing."""
    random = np.random.default_rng(seed)

    def one(of: Sequence[str]) -> str:
        return str(of[int(random.integers(len(of)))])

    mask, writing = one(MASKS), one(WRITINGS)
    drawing = Drawing(
        one(POSITIONS),
        mask,
        writing,
        float(LOWS[int(random.integers(len(LOWS)))]),
        int(random.integers(1, 3)),
        int(random.integers(1, 3)),
        bool(random.integers(2)),
        bool(random.integers(2)),
        bool(random.integers(2)),
        bool(random.integers(2)),
        width=int(random.integers(1, 6)),
        spoiler=one(SPOILERS) if spoiled else "",
        seed=seed,
    )
    kind = int(random.integers(3))
    if kind == 0 and drawing.spoiler != "wrong_axis":
        local = one(LOCALS[1:])
        is_spoiled = spoiled and bool(random.integers(2))
        return dataclasses.replace(
            drawing, local=local, spoiler=LOCAL_SPOILERS[local] if is_spoiled else drawing.spoiler
        )
    if kind < 2:
        return drawing
    text = one(TEXTS[1:])
    if drawing.positions in NOT_BEHIND:
        drawing = dataclasses.replace(drawing, positions="rotary")
    if drawing.seed % 3 == 0:  # what the others are drawn from stays as it is
        drawing = dataclasses.replace(drawing, mask=JOINED)
    is_spoiled_by_text = spoiled and bool(random.integers(2))
    return dataclasses.replace(
        drawing, text=text, spoiler=one(TEXT_SPOILERS) if is_spoiled_by_text else drawing.spoiler
    )


def drawn_with_tokens(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing whose tokens reach their table in some way, within a range or none; spoiled, beyond it."""
    random = np.random.default_rng([seed, 3])
    tokens = str(random.choice(sorted(set(TOKENS) - {"within"} if spoiled else TOKENS)))
    low, high = TOKENS[tokens]
    tight, half = (low, high), (low, low + (high - low) // 2)
    told = (low, high + int(random.integers(1, 100))) if spoiled else (None, tight, half)[int(random.integers(3))]
    drawing = drawn(seed, spoiled=False)
    return dataclasses.replace(drawing, tokens=tokens, declared=told, spoiler=BEYOND if spoiled else "")


def drawn_recurrences(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing with recurrences that begin with other states than zeros; spoiled, with none that is known."""
    random = np.random.default_rng([seed, 5])
    local, begun = str(random.choice(["gru", "lstm", "deep"])), str(random.choice(BEGUN_APART if spoiled else BEGUN))
    drawing = dataclasses.replace(drawn(seed, spoiled=False), text="", local=local, begun=begun)
    return dataclasses.replace(drawing, spoiler=begun if spoiled else "")


def drawn_in_chunks(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing whose frames see their own chunk, and the one in front of it; spoiled, what lies behind it."""
    random = np.random.default_rng([seed, 1])
    width = int(random.integers(2, 7))
    drawing = dataclasses.replace(drawn(2 * seed, spoiled=False), mask=CHUNKED, width=width, text="")
    if drawing.positions == "skewed":  # has no score of later frames
        drawing = dataclasses.replace(drawing, positions="moved")
    if not spoiled:
        return drawing
    of = [*CHUNK_SPOILERS, *OTHER_SPOILERS, *([LOCAL_SPOILERS[drawing.local]] if drawing.local else [])]
    return dataclasses.replace(drawing, spoiler=str(of[int(random.integers(len(of)))]))


def drawn_sliding(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing under a mask that slides along, of which steps forget what no later call reads."""
    random = np.random.default_rng([seed, 2])
    if random.integers(2):
        return dataclasses.replace(drawn_in_chunks(seed, spoiled=spoiled), forgets=True)
    drawing = dataclasses.replace(drawn(2 * seed, spoiled=False), mask="band", width=int(random.integers(2, 9)))
    if seed % 5 == 0:  # what the others are drawn from stays as it is
        drawing = dataclasses.replace(drawing, mask=RETURNING, text="")
    if seed % 3 == 0:
        hiding, join = str(random.choice(["", "others"])), str(random.choice(JOINS))
        is_softmax = drawing.writing in ("select", "add")
        positions = str(random.choice(UNBOUNDED))
        hiding = hiding if is_softmax else ""
        drawing = dataclasses.replace(drawing, positions=positions, text="", hiding=hiding, join=join)
        if drawing.mask == "band" and random.integers(2):
            drawing = dataclasses.replace(drawing, mask="chunks", width=int(random.integers(1, 6)))
    spoiler = OTHER_SPOILERS[int(random.integers(len(OTHER_SPOILERS)))] if spoiled else ""
    return dataclasses.replace(drawing, spoiler=spoiler, forgets=True)


def drawn_at_rates(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing whose result has several entries per frame; spoiled, these know others that come later."""
    random = np.random.default_rng([seed, 4])
    drawing = dataclasses.replace(
        drawn(2 * seed, spoiled=False),
        rate=str(random.choice(RATES[1:])),
        entries=int(random.integers(2, 5)),
        is_returned=bool(random.integers(2)),
    )
    spoiler = str(random.choice((*FINE_SPOILERS, *OTHER_SPOILERS))) if spoiled else ""
    return dataclasses.replace(drawing, spoiler=spoiler)


def drawn_spelled(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing of one attention under a band in a random spelling; spoiled, it shows more, or hides less."""
    random = np.random.default_rng([seed, 6])
    spoilers = (*NEAR_SPOILERS, *FAR_MASK_SPOILERS)
    spoiler = spoilers[seed // 2 % len(spoilers)] if spoiled else ""
    is_added = spoiler in ("soft", "endless")
    low, positions = float(random.choice(LOWS)), str(random.choice(("none", "rotary", "linear_bias", "bucket_bias")))
    return Drawing(
        "bucket_bias" if spoiler == "by_place" else positions,
        SPELLED,
        "add" if is_added else str(random.choice(WRITINGS)),
        low,
        groups=int(random.integers(1, 3)),
        width=int(random.integers(1, 9)),
        spoiler=spoiler,
        seed=seed,
        forgets=True,
        hiding="" if spoiler == "opened" else str(random.choice(["", "", "others"])),
        join=str(random.choice(JOINS)),
        hidden=low,
    )


def drawn_operators(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing with an operator that computes of every frame alone; spoiled, along time. Few have attention."""
    random = np.random.default_rng([seed, 7])
    single = SINGLES[seed // 2 % len(SINGLES)]
    return Drawing(
        mask=str(random.choice(("compared", "band", "offset"))),
        layers=int(random.integers(4) == 0 or single == "counted"),
        flat=bool(random.integers(2)),
        spoiler="single" if spoiled else "",
        seed=seed,
        forgets=bool(random.integers(2)),
        single=single,
    )


def drawn_chains(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing with a chain of layers at several rates; spoiled, the last reads later entries, or all."""
    random = np.random.default_rng([seed, 8])
    chain = tuple(str(link) for link in random.choice(LINKS, int(random.integers(1, 6))))
    spoiler = CHAIN_SPOILERS[seed // 2 % len(CHAIN_SPOILERS)] if spoiled else ""
    return Drawing(layers=int(random.integers(6) == 0), spoiler=spoiler, seed=seed, chain=chain)


def drawn_ahead(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing with a chain whose links may read ahead, so that answers come later; spoiled, without end."""
    random = np.random.default_rng([seed, 9])
    links = [link for link in LINKS if link != "gru"]  # recurrences begin with the first frame
    chain = [str(link) for link in random.choice([*links, *AHEAD, *AHEAD], int(random.integers(1, 6)))]
    chain.insert(int(random.integers(len(chain) + 1)), str(random.choice(AHEAD)))
    unbounded = [spoiler for spoiler in CHAIN_SPOILERS if spoiler not in AHEAD]
    return Drawing(layers=0, spoiler=str(random.choice(unbounded)) if spoiled else "", seed=seed, chain=tuple(chain))


def drawn_masks(seed: int, *, spoiled: bool) -> Drawing:
    """A random drawing whose mask changes with another axis or with data; spoiled, a frame may see nothing."""
    random = np.random.default_rng([seed, 3])

    def one(of: Sequence[Any]) -> Any:
        return of[int(random.integers(len(of)))]

    drawing = Drawing(
        str(one(("none", "rotary", "looked_up"))),
        str(one(("compared", "triangle", "band", "table", *HARD_MASKS[2:]))),
        str(one(("select", "add"))),
        float(one(LOWS)),
        int(random.integers(1, 3)),
        width=int(random.integers(1, 6)),
        seed=seed,
        forgets=bool(random.integers(2)),
        hiding=str(one(("", "others"))),
        join=str(one(JOINS)),
        hidden=float(one(LOWS)),
        is_guarded=bool(random.integers(2)),
    )
    if drawing.mask == "first_by_memory" and drawing.width == 1:
        drawing = dataclasses.replace(drawing, width=2)
    if not spoiled:
        return drawing
    if random.integers(2):
        return dataclasses.replace(drawing, hiding=str(one(HIDINGS[1:])), spoiler="hidden")
    return dataclasses.replace(drawing, mask=str(one(HARD_MASKS[:2])), hiding=str(one(HIDINGS)), spoiler="blind")


class _Writer:
    """Writes one graph."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing, self.random = drawing, np.random.default_rng(drawing.seed)
        tokens = ir.Value(name="tokens", shape=ir.Shape(["batch", "time"]), type=ir.TensorType(ir.DataType.INT64))
        graph = ir.Graph([tokens], [], nodes=[], opset_imports={"": 20}, name="whole")
        self.model = ir.Model(graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "kit")
        self.tokens = tokens
        self.length = self.frames = self.op("Squeeze", self.op("Shape", tokens, start=1, end=2))
        if drawing.text:
            letters: int | str = LETTERS if drawing.text == "fixed" else "letters"
            kind = ir.TensorType(ir.DataType.INT64)
            self.text = ir.Value(name="text", shape=ir.Shape(["batch", letters]), type=kind)
            graph.inputs.append(self.text)
            self.letters = self.op("Squeeze", self.op("Shape", self.text, start=1, end=2))
            self.length = self.op("Add", self.letters, self.frames)
        if drawing.has_memory:
            kind = ir.TensorType(ir.DataType.INT64)
            self.memory = ir.Value(name="memory", shape=ir.Shape(["batch", "heard"]), type=kind)
            graph.inputs.append(self.memory)
        self.places = self.op("Range", self.number(0), self.length, self.number(1))

    def op(self, op_type: str, *operands: ir.Value | None, **attributes: int | str | Sequence[int]) -> ir.Value:
        kind = {"to": attributes["to"]} if op_type == "Cast" else {}
        value = self.insert.op(op_type, list(operands), attributes, name=op_type.lower())
        if op_type in ("LessOrEqual", "Greater", "Less", "And", "Or", "Not", "Equal", "GreaterOrEqual", "IsNaN", "Xor"):
            value.dtype = ir.DataType.BOOL
        elif op_type in ("Shape", "Size", "ArgMax", "ArgMin"):
            value.dtype = ir.DataType.INT64
        elif op_type == "ConstantOfShape":
            value.dtype = ir.DataType.FLOAT
        elif op_type == "Where":
            assert operands[1] is not None and operands[1].dtype is not None
            value.dtype = operands[1].dtype
        elif kind:
            value.dtype = ir.DataType(int(str(kind["to"])))
        return value

    def number(self, value: int) -> ir.Value:
        return self.insert.constant(np.array(value, np.int64), "number")

    def whole(self, numbers: object) -> ir.Value:
        return self.insert.constant(np.array(numbers, np.int64), "numbers")

    def real(self, value: float) -> ir.Value:
        return self.insert.constant(np.array(value, np.float32), "real")

    def weights(self, *shape: int) -> ir.Value:
        scale = 1.5 / np.sqrt(shape[0])
        array = (self.random.standard_normal(shape) * scale).astype(np.float32)
        return self.insert.constant(array, "weights")

    def ints(self, *values: int) -> ir.Value:
        return self.insert.int64s(*values)

    def floats(self, value: ir.Value) -> ir.Value:
        return self.op("Cast", value, to=1)

    def rows(self) -> ir.Value:
        return self.op("Unsqueeze", self.places, self.ints(1))

    def columns(self) -> ir.Value:
        return self.op("Unsqueeze", self.places, self.ints(0))

    def product(self, left: ir.Value, right: ir.Value, equation: str) -> ir.Value:
        if self.drawing.einsum:
            return self.op("Einsum", left, right, equation=equation)
        return self.op("MatMul", left, right)

    # Masks: true where a frame may be seen

    def mask(self) -> ir.Value:
        drawing, rows, columns = self.drawing, self.rows(), self.columns()
        if drawing.mask == JOINED and drawing.text:
            return self._joined()
        ahead = self.number(drawing.width) if drawing.spoiler == "ahead" else self.number(0)
        limit = self.op("Add", rows, ahead)
        made: dict[str, Callable[[], ir.Value]] = {
            "compared": lambda: self.op("LessOrEqual", columns, limit),
            JOINED: lambda: self.op("LessOrEqual", columns, limit),
            "triangle": lambda: self.op("Equal", self._triangle(1 + self._ahead(), upper=1), self.real(0)),
            "truths": lambda: self._triangle(self._ahead(), upper=0, of=True),
            "lower": lambda: self.op("Greater", self._triangle(self._ahead(), upper=0), self.real(0.5)),
            "table": self._table,
            "band": lambda: self.op(
                "And",
                self.op("LessOrEqual", columns, limit),
                self.op("Greater", columns, self.op("Sub", rows, self.number(drawing.width))),
            ),
            "offset": lambda: self.op("GreaterOrEqual", self.op("Sub", limit, columns), self.number(0)),
            "chunks": lambda: self.op(
                "And",
                self.op("Less", self.op("Sub", self._chunk(limit), self._chunk(columns)), self.number(2)),
                self.op("LessOrEqual", columns, limit),
            ),
            CHUNKED: lambda: self._within_chunks(rows, columns),
            RETURNING: lambda: self.op(
                "And",
                self.op("LessOrEqual", columns, limit),
                self.op(
                    "Less",
                    self.op("Mod", self.op("Sub", rows, columns), self.number(LONGEST + 5)),
                    self.number(drawing.width),
                ),
            ),
            PREFIX: lambda: self.op(
                "Or", self.op("LessOrEqual", columns, limit), self.op("Less", columns, self.number(drawing.width))
            ),
            "strict": lambda: self.op("Less", columns, limit),
            "behind": lambda: self.op("LessOrEqual", columns, self.op("Sub", rows, self.number(drawing.width))),
            "first_by_memory": lambda: self.op(
                "Or",
                self.op("LessOrEqual", columns, limit),
                self.op("Less", columns, self.op("Sub", self._heard(), self.number(drawing.width))),
            ),
            "band_by_memory": lambda: self.op(
                "And",
                self.op("LessOrEqual", columns, limit),
                self.op("Greater", columns, self.op("Sub", rows, self._heard())),
            ),
            "packed": lambda: self.op(
                "And", self.op("LessOrEqual", columns, limit), self.op("Equal", self._sequences(1), self._sequences(0))
            ),
            SPELLED: lambda: SpelledMasks(self, LONGEST).band(drawing.width, drawing.spoiler, self.loud),
            "counted": lambda: self.op("LessOrEqual", self._counted(0), self.op("Add", self._counted(1), ahead)),
        }  # fmt: skip
        mask = made[drawing.mask]()
        if not drawing.text:
            return mask
        mask = self.op("Or", mask, self.op("Less", columns, self.letters))
        return self.op("Or", mask, self.op("Less", rows, self.letters)) if drawing.spoiler == "text_hears" else mask

    def _joined(self) -> ir.Value:
        """Of ones where may be seen: a text sees itself, frames see the text and those up to their own."""
        letters, frames = (self.op("Unsqueeze", each, self.ints(0)) for each in (self.letters, self.frames))
        of_text = self.op("Expand", self.real(1), self.op("Concat", letters, letters, axis=0))
        places = self.op("Range", self.number(0), self.frames, self.number(1))
        rows, columns = (self.op("Unsqueeze", places, self.ints(axis)) for axis in (1, 0))
        limit = self.op("Add", rows, self.number(self._ahead()))
        of_frames = self.floats(self.op("LessOrEqual", columns, limit))
        hears = self.real(float(self.drawing.spoiler == "text_hears"))
        parts = [
            self.op("Pad", of_text, self.op("Concat", self.ints(0, 0, 0), frames, axis=0), hears),
            self.op("Pad", of_frames, self.op("Concat", self.ints(0), letters, self.ints(0, 0), axis=0), self.real(1)),
        ]
        return self.op("Greater", self.op("Concat", *parts, axis=0), self.real(0.5))

    def _heard(self) -> ir.Value:
        return self.op("Squeeze", self.op("Shape", self.memory, start=1, end=2))

    def _ahead(self) -> int:
        return self.drawing.width if self.drawing.spoiler == "ahead" else 0

    def _chunk(self, value: ir.Value) -> ir.Value:
        return self.op("Div", value, self.number(self.drawing.width))

    def _within_chunks(self, rows: ir.Value, columns: ir.Value) -> ir.Value:
        """Own chunk and the one before; spoiled, the next one, or chunks that begin elsewhere."""
        if self.drawing.spoiler == "chunk_shifted":
            rows, columns = (self.op("Add", each, self.number(1)) for each in (rows, columns))
        behind = self.op("Sub", self._chunk(rows), self._chunk(columns))
        least = -1 if self.drawing.spoiler == "chunk_ahead" else 0
        return self.op(
            "And",
            self.op("Less", behind, self.number(2)),
            self.op("GreaterOrEqual", behind, self.number(least)),
        )

    def _triangle(self, diagonal: int, *, upper: int, of: bool | float = 1.0) -> ir.Value:
        length = self.op("Unsqueeze", self.length, self.ints(0))
        one = self.insert.constant(np.array(of, bool if of is True else np.float32), "one")
        ones = self.op("Expand", one, self.op("Concat", length, length, axis=0))
        return self.op("Trilu", ones, self.number(diagonal), upper=upper)

    def _table(self) -> ir.Value:
        table = np.tril(np.ones((LONGEST, LONGEST), bool), self._ahead())
        value = self.insert.constant(table, "table")
        length = self.op("Unsqueeze", self.length, self.ints(0))
        ends = self.op("Concat", length, length, axis=0)
        return self.op("Slice", value, self.ints(0, 0), ends, self.ints(0, 1))

    def _sequences(self, axis: int) -> ir.Value:
        """The number of the packed sequence that a place is in: one more wherever places do not go on by one."""
        length = self.op("Unsqueeze", self.length, self.ints(0))
        before = self.op("Slice", self.op("Concat", self.ints(-1), self.places, axis=0), self.ints(0), length)
        begins = self.op("Not", self.op("Equal", self.op("Sub", self.places, before), self.number(1)))
        numbers = self.op("CumSum", self.op("Cast", begins, to=7), self.number(0))
        return self.op("Unsqueeze", numbers, self.ints(axis))

    def _counted(self, axis: int) -> ir.Value:
        """Places as a running sum of ones."""
        ones = self.op("Expand", self.number(1), self.op("Unsqueeze", self.length, self.ints(0)))
        return self.op("Unsqueeze", self.op("CumSum", ones, self.number(0)), self.ints(axis))

    # The parts of a decoder

    def positioned(self, x: ir.Value) -> ir.Value:
        places = self.places
        if self.drawing.spoiler == "reversed":
            places = self.op("Sub", self.op("Sub", self.length, self.number(1)), places)
        if self.drawing.positions == "table":
            length = self.op("Unsqueeze", self.length, self.ints(0))
            start = self.op("Neg", length) if self.drawing.spoiler == "from_end" else self.ints(0)
            end = self.ints(2**62) if self.drawing.spoiler == "from_end" else length
            x = self.op("Add", x, self.op("Slice", self.weights(LONGEST, WIDTH), start, end, self.ints(0)))
        elif self.drawing.positions in ("looked_up", "counted") or self.drawing.spoiler == "reversed":
            x = self.op("Add", x, self.op("Gather", self.weights(LONGEST + 1, WIDTH), places, axis=0))
        elif self.drawing.positions == "picked":
            length = self.op("Unsqueeze", self.length, self.ints(0))
            wide = self.op("Concat", length, self.ints(WIDTH), axis=0)
            each = self.op("Expand", self.op("Unsqueeze", places, self.ints(1)), wide)
            x = self.op("Add", x, self.op("GatherElements", self.weights(LONGEST, WIDTH), each, axis=0))
        elif self.drawing.positions == "summed":
            x = self.op("Add", x, self.op("CumSum", self.op("Mul", x, self.real(0.1)), self.number(1)))
        elif self.drawing.positions == "sinusoid":
            angles = self.op("Mul", self.floats(self.op("Unsqueeze", places, self.ints(1))), self.weights(1, WIDTH))
            x = self.op("Add", x, self.op("Sin", angles))
        return x

    def heads(self, x: ir.Value, count: int, *, turned: bool = False) -> ir.Value:
        """[batch, time, width] -> [batch, count, time, size], or with the last two turned."""
        made = self.op("MatMul", x, self.weights(WIDTH, count * SIZE))
        parted = self.op("Reshape", made, self.ints(0, 0, count, SIZE))
        return self.op("Transpose", parted, perm=(0, 2, 3, 1) if turned else (0, 2, 1, 3))

    def spread(self, x: ir.Value, turned: bool) -> ir.Value:
        """Two heads of one."""
        if self.drawing.groups == HEADS:
            return x
        last = (SIZE, -1) if turned else (-1, SIZE)
        wide = self.op("Expand", self.op("Unsqueeze", x, self.ints(2)), self.ints(1, 1, HEADS, 1, 1))
        return self.op("Reshape", wide, self.ints(0, HEADS, *last))

    def rotated(self, x: ir.Value) -> ir.Value:
        if self.drawing.positions != "rotary":
            return x
        angles = self.op("Mul", self.floats(self.rows()), self.insert.constant(np.array([[1.0, 0.1]], "f"), "rates"))
        first = self.op("Slice", x, self.ints(0), self.ints(2), self.ints(-1))
        second = self.op("Slice", x, self.ints(2), self.ints(4), self.ints(-1))
        cos, sin = self.op("Cos", angles), self.op("Sin", angles)
        left = self.op("Sub", self.op("Mul", first, cos), self.op("Mul", second, sin))
        right = self.op("Add", self.op("Mul", second, cos), self.op("Mul", first, sin))
        return self.op("Concat", left, right, axis=-1)

    def biased(self, scores: ir.Value, queries: ir.Value) -> ir.Value:
        if self.drawing.positions in SHIFTED:
            return self.op("Add", scores, self.moved(queries))
        far = self.op("Sub", self.columns(), self.rows())
        if self.drawing.spoiler == "length_bias":
            far = self.op("Sub", self.columns(), self.length)
        if self.drawing.positions == "linear_bias" or self.drawing.spoiler == "length_bias":
            slopes = self.insert.constant(np.array([[[0.5]], [[0.25]]], np.float32), "slopes")
            return self.op("Add", scores, self.op("Mul", self.floats(far), slopes))
        if self.drawing.mask == SPELLED and self.drawing.positions == "bucket_bias":
            place = SpelledMasks(self, LONGEST).place(is_by_distance=self.drawing.spoiler != "by_place")
            bias = self.op("Gather", self.weights(8, HEADS), place, axis=0)
            return self.op("Add", scores, self.op("Transpose", bias, perm=(2, 0, 1)))
        if self.drawing.positions == "bucket_bias":
            near = self.op("Clip", self.op("Neg", far), self.number(0), self.number(5))
            bias = self.op("Transpose", self.op("Gather", self.weights(6, HEADS), near, axis=0), perm=(2, 0, 1))
            return self.op("Add", scores, bias)
        return scores

    def moved(self, queries: ir.Value) -> ir.Value:
        """Scores by distance, [.., time, distances], as [.., time, time]: a column is added, a row taken off."""
        length = self.op("Unsqueeze", self.length, self.ints(0))
        first, last, count = self.op("Sub", self.ints(LONGEST), length), self.ints(LONGEST), length
        if self.drawing.positions == "moved":
            last = self.op("Sub", self.op("Add", self.ints(LONGEST), length), self.ints(1))
            count = self.op("Sub", self.op("Mul", length, self.ints(2)), self.ints(1))
        if self.drawing.spoiler == "far_turned":
            first, last = self.ints(0), count
        table = self.op("Slice", self.weights(2 * LONGEST - 1, SIZE), first, last, self.ints(0))
        if self.drawing.spoiler == "far_scaled":
            table = self.op("Div", table, self.floats(self.length))
        made = self.op("MatMul", table, self.weights(SIZE, SIZE))
        far = self.product(queries, self.op("Transpose", made, perm=(1, 0)), "bhid,dk->bhik")
        lead = self.op("Shape", far, start=0, end=2)
        wide = self.op("Pad", far, self.ints(0, 0, 0, 1, 0, 0, 0, 0))
        more = self.op("Add", count, self.ints(1))
        turned = self.op("Reshape", wide, self.op("Concat", lead, more, length, axis=0))
        cut = self.op("Slice", turned, self.ints(1), self.ints(2**62), self.ints(2))
        if self.drawing.spoiler == "far_cut":
            cut = self.op("Slice", turned, self.ints(0), self.ints(-1), self.ints(2))
        back = self.op("Reshape", cut, self.op("Concat", lead, length, count, axis=0))
        return self.op("Slice", back, self.ints(0), length, self.ints(3))

    def attention(self, x: ir.Value) -> ir.Value:
        drawing = self.drawing
        queries = self.rotated(self.heads(x, HEADS))
        turned = drawing.keys_turned and drawing.positions != "rotary"
        keys = self.heads(x, drawing.groups, turned=turned)
        keys = self.spread(keys if turned else self.rotated(keys), turned)
        keys = keys if turned else self.op("Transpose", keys, perm=(0, 1, 3, 2))
        values = self.spread(self.heads(x, drawing.groups), turned=False)
        scores = self.op("Mul", self.product(queries, keys, "bhid,bhdj->bhij"), self.real(0.5))
        scores = self.biased(scores, queries)
        weights = self.weighted(scores)
        if drawing.spoiler == "wrong_axis":
            weights = self.op("Transpose", weights, perm=(0, 1, 3, 2))
        heard = self.op("Transpose", self.product(weights, values, "bhij,bhjd->bhid"), perm=(0, 2, 1, 3))
        return self.op("MatMul", self.op("Reshape", heard, self.ints(0, 0, HEADS * SIZE)), self.weights(WIDTH, WIDTH))

    def weighted(self, scores: ir.Value) -> ir.Value:
        drawing = self.drawing
        if drawing.spoiler == "no_mask":
            return self.op("Softmax", scores, axis=-1)
        mask, seen = self.mask(), self.seen()
        if seen is not None and drawing.mask == SPELLED:
            seen = SpelledMasks(self, LONGEST).respelled(seen)
        if seen is not None and drawing.join == "before":
            scores = self.op("Where", seen, scores, self.real(drawing.hidden))
        elif seen is not None and drawing.join == "truths":
            mask = self.op("And", mask, seen)
        elif seen is not None and drawing.join == "numbers":
            mask = self.op("Greater", self.op("Mul", self.floats(mask), self.floats(seen)), self.real(0.5))
        if drawing.spoiler == "soft_mask":
            return self.op("Softmax", self.op("Where", mask, scores, self.real(-3.0)), axis=-1)
        if drawing.writing in ("select", "add"):
            return self.shares(self.masked(scores, mask), seen)
        grown = self.op("Exp", self.op("Tanh", scores))  # weights of no softmax: masked behind
        if drawing.writing == "late":
            return self.op("Where", mask, grown, self.real(0))
        if drawing.writing == "linear":
            shown = self.op("Mul", scores, self.floats(mask))
            is_low = drawing.spoiler in ("", "ahead") and drawing.mask != CHUNKED and not drawing.text
            return self.op("Trilu", shown, self.number(self._ahead()), upper=0) if is_low else shown
        kept = self.op("Mul", grown, self.floats(mask))
        if drawing.writing == "factor":
            return kept
        return self.op("Div", kept, self.op("ReduceSum", kept, self.ints(-1)))

    def loud(self) -> ir.Value:
        """Tokens that any frame may see, [batch, 1, 1, time]."""
        return self.op("Unsqueeze", self.op("Less", self.tokens, self.number(LABELS // 2)), self.ints(1, 2))

    def seen(self) -> ir.Value | None:
        """What padding tokens leave to be seen, as truths [batch, 1, time or 1, time or 1]."""
        if not self.drawing.hiding:
            return None
        kept = self.op("Not", self.op("Equal", self.tokens, self.number(PADDING)))
        kept = self.op("Unsqueeze", kept, self.ints(1, 3 if self.drawing.hiding == "rows" else 2))
        if self.drawing.hiding != "others":
            return kept
        return self.op("Or", kept, self.op("Equal", self.rows(), self.columns()))

    def masked(self, scores: ir.Value, mask: ir.Value) -> ir.Value:
        if self.drawing.writing == "select":
            return self.op("Where", mask, scores, self.real(self.drawing.low))
        if self.drawing.mask == SPELLED:
            bias = SpelledMasks(self, LONGEST).bias(mask, self.drawing.low, self.drawing.spoiler)
        elif self.drawing.join == "numbers" and math.isfinite(self.drawing.low):
            bias = self.op("Mul", self.op("Sub", self.real(1), self.floats(mask)), self.real(self.drawing.low))
        else:
            bias = self.op("Where", mask, self.real(0), self.real(self.drawing.low))
        return self.op("Add", scores, bias)

    def shares(self, scores: ir.Value, seen: ir.Value | None) -> ir.Value:
        if seen is not None and self.drawing.join == "behind":
            scores = self.op("Where", seen, scores, self.real(self.drawing.hidden))
        weights = self.op("Softmax", scores, axis=-1)
        if not self.drawing.is_guarded:
            return weights
        return self.op("Where", self.op("IsNaN", weights), self.real(0), weights)

    def forward_part(self, x: ir.Value) -> ir.Value:
        if self.drawing.flat:
            x = self.op("Reshape", x, self.ints(-1, WIDTH))
        wide = self.op("Relu", self.op("Add", self.op("MatMul", x, self.weights(WIDTH, 12)), self.weights(12)))
        narrow = self.op("MatMul", wide, self.weights(12, WIDTH))
        if not self.drawing.flat:
            return narrow
        rows = self.op("Shape", self.tokens, start=0, end=1)
        length = self.op("Unsqueeze", self.length, self.ints(0))
        return self.op("Reshape", narrow, self.op("Concat", rows, length, self.ints(WIDTH), axis=0))

    def heard(self, x: ir.Value) -> ir.Value:
        """Frames with what lies around them, [batch, time, width]."""
        local, is_spoiled = self.drawing.local, self.drawing.spoiler in LOCAL_SPOILERS.values()
        if local.endswith("_back"):
            return self.moved_back(x, is_spoiled)
        if local in ("chomped", "padded"):
            return self.chomped(x, is_spoiled)
        if local in ("conv", "apart"):
            taps, far = int(self.random.integers(2, 5)), 2 if local == "apart" else 1
            reach = far * (taps - 1)
            pads = (reach - 1, 1) if is_spoiled else (reach, 0)
            turned = self.op("Transpose", x, perm=(0, 2, 1))
            found = self.op("Conv", turned, self.weights(WIDTH, WIDTH, taps), pads=pads, dilations=(far,))
            return self.op("Transpose", found, perm=(0, 2, 1))
        turned = self.op("Transpose", x, perm=(1, 0, 2))
        for layer in range(2 if local == "deep" else 1):
            gates = 3 if local == "gru" else 4
            weights = (self.weights(1, gates * WIDTH, WIDTH) for _ in range(2))
            ways = "reverse" if is_spoiled and layer == 0 else "forward"
            is_begun, count = local == "deep" or bool(self.drawing.begun), 1 if local == "gru" else 2
            more = [None, None, *(self._state(layer, turned) for _ in range(count))] if is_begun else []
            found = self.op("GRU" if local == "gru" else "LSTM", turned, *weights, *more, hidden_size=WIDTH,
                            direction=ways)  # fmt: skip
            turned = self.op("Squeeze", found, self.ints(1))
        return self.op("Transpose", turned, perm=(1, 0, 2))

    def _state(self, layer: int, frames: ir.Value) -> ir.Value:
        """A layer [1, batch, width] of what all layers begin with."""
        begun, rows = self.drawing.begun, self.op("Shape", self.tokens, start=0, end=1)
        stack = self.op("Concat", self.ints(2), rows, self.ints(WIDTH), axis=0)
        if begun == "of_frames":
            return self.op("Slice", frames, self.ints(0), self.ints(1), self.ints(0))
        if begun == "by_row":
            return self.op("Slice", self.weights(1, 9, WIDTH), self.ints(0), rows, self.ints(1))
        if begun == "tiled":
            times = self.op("Concat", self.ints(1), rows, self.ints(1), axis=0)
            states = self.op("Tile", self.weights(2, 1, WIDTH), times)
        elif begun in ("turned", "rows_mixed"):
            sizes = self.op("Concat", rows, self.ints(2, WIDTH), axis=0)
            states = self.op("Expand", self.weights(1, 2, WIDTH), sizes)
            mixed = begun == "rows_mixed"
            states = self.op("Reshape", states, stack) if mixed else self.op("Transpose", states, perm=(1, 0, 2))
        elif begun == "regrouped":
            sizes = self.op("Concat", self.ints(2), rows, self.ints(1, WIDTH), axis=0)
            states = self.op("Reshape", self.op("Expand", self.weights(2, 1, 1, WIDTH), sizes), stack)
        else:
            row = {"": self.real(0), "number": self.real(0.5)}.get(begun)
            states = self.op("Expand", self.weights(2, 1, WIDTH) if row is None else row, stack)
        if begun == "by_length":
            states = self.op("Mul", states, self.op("Cast", self.length, to=int(ir.DataType.FLOAT)))
        if begun == "picked":
            return self.op("Gather", states, self.ints(layer), axis=0)
        return self.op("Slice", states, self.ints(layer), self.ints(layer + 1), self.ints(0))

    def chomped(self, x: ir.Value, is_spoiled: bool) -> ir.Value:
        """A convolution that adds as many zeros behind as in front, and is cut; or over frames behind zeros."""
        reach = int(self.random.integers(1, 4))
        kernel, turned = self.weights(WIDTH, WIDTH, reach + 1), self.op("Transpose", x, perm=(0, 2, 1))
        if self.drawing.local == "padded":
            wide = self.op("Pad", x, self.ints(0, reach - is_spoiled, 0, 0, int(is_spoiled), 0))
            return self.op("Transpose", self.op("Conv", self.op("Transpose", wide, perm=(0, 2, 1)), kernel),
                           perm=(0, 2, 1))  # fmt: skip
        found = self.op("Tanh", self.op("Conv", turned, kernel, pads=(reach, reach)))
        first = self.ints(int(is_spoiled))
        end = self.op("Add", self.op("Unsqueeze", self.length, self.ints(0)), first)
        end = self.ints(-reach) if not is_spoiled and self.random.integers(2) else end
        return self.op("Transpose", self.op("Slice", found, first, end, self.ints(2)), perm=(0, 2, 1))

    def moved_back(self, x: ir.Value, is_spoiled: bool) -> ir.Value:
        """Frames behind as many others; spoiled, in front of them."""
        far, local = int(self.random.integers(1, 4)), self.drawing.local
        pads = (0, far, 0, 0, -far, 0)
        if local == "moved_back" or is_spoiled:
            moved = self.op("Pad", x, self.ints(*(-each if is_spoiled else each for each in pads)))
        elif local == "cut_back":
            wide = self.op("Pad", x, self.ints(0, far, 0, 0, 0, 0), self.real(float(self.random.integers(2))))
            end = self.op("Unsqueeze", self.length, self.ints(0))
            moved = self.op("Slice", wide, self.ints(0), end, self.ints(1))
        else:
            rows = self.op("Concat", self.op("Shape", self.tokens, start=0, end=1), self.ints(far, WIDTH), axis=0)
            front = self.op("Expand", self.real(0), rows)
            moved = self.op("Concat", front, self.op("Slice", x, self.ints(0), self.ints(-far), self.ints(1)), axis=1)
        return self.op("MatMul", moved, self.weights(WIDTH, WIDTH))

    def normal(self, x: ir.Value) -> ir.Value:
        return self.op("LayerNormalization", x, self.insert.constant(np.ones(WIDTH, "f"), "ones"), axis=-1)

    def spoiled(self, x: ir.Value) -> ir.Value:
        spoiler = self.drawing.spoiler
        if spoiler == "mean":
            return self.op("Sub", x, self.op("ReduceMean", x, self.ints(1), keepdims=1))
        if spoiler == "norm":
            turned = self.op("Transpose", x, perm=(0, 2, 1))
            ones, none = (self.insert.constant(np.full(WIDTH, v, "f"), "scale") for v in (1, 0))
            return self.op("Transpose", self.op("InstanceNormalization", turned, ones, none), perm=(0, 2, 1))
        if spoiler == "scaled":
            return self.op("Div", x, self.op("Sqrt", self.floats(self.length)))
        if spoiler == "shifted":
            later = self.op("Slice", x, self.ints(1), self.ints(2**62), self.ints(1))
            return self.op("Pad", later, self.ints(0, 0, 0, 0, 1, 0))
        if spoiler == "future_sum":
            return self.op("CumSum", x, self.number(1), reverse=1)
        return x

    def embedded(self) -> ir.Value:
        frames = self.looked_up()
        if not self.drawing.text:
            return frames
        both = self.op("Gather", self.weights(LABELS, WIDTH), self.text, axis=0), frames
        return self.op("Concat", *(both[::-1] if self.drawing.spoiler == "text_behind" else both), axis=1)

    def looked_up(self) -> ir.Value:
        tokens, zero = self.tokens, self.number(0)
        match self.drawing.tokens:
            case "clamped":
                tokens = self.op("Max", tokens, zero)
            case "within":
                tokens = self.op("Clip", tokens, zero, self.number(LABELS - 1))
            case "replaced":
                tokens = self.op("Where", self.op("Less", tokens, zero), zero, tokens)
            case "shifted":
                tokens = self.op("Sub", tokens, self.number(100))
            case "offset":
                table, other = self.weights(2 * LABELS, WIDTH), self.op("Add", tokens, self.number(LABELS))
                books = (self.op("Gather", table, each, axis=0) for each in (tokens, other))
                return self.op("Add", *books)
        return self.op("Gather", self.weights(LABELS, WIDTH), tokens, axis=0)

    def at_rate(self, x: ir.Value) -> ir.Value:
        """Several entries per frame, and something of every one by itself."""
        count = self.drawing.entries
        match self.drawing.rate:
            case "spread":
                wide = self.op("MatMul", x, self.weights(WIDTH, count * WIDTH))
            case "repeated":
                wide = self.op("Expand", self.op("Unsqueeze", x, self.ints(2)), self.ints(1, 1, count, 1))
            case "joined":
                wide = self.op("Concat", x, *[self.op("Tanh", x)] * (count - 1), axis=2)
            case _:
                wide = self.op("Tanh", x)
        last = 1 if self.drawing.rate == "flat" else WIDTH
        fine = self.op("Reshape", wide, self.ints(0, -1, last))
        fine = self.finely_spoiled(self.op("Sin", fine))
        return self.op("Add", self.op("MatMul", fine, self.weights(last, LABELS)), self.weights(LABELS))

    def finely_spoiled(self, fine: ir.Value) -> ir.Value:
        match self.drawing.spoiler:
            case "fine_mean":
                return self.op("Sub", fine, self.op("ReduceMean", fine, self.ints(1), keepdims=1))
            case "fine_share":
                return self.op("Softmax", fine, axis=1)
            case "fine_moved":
                later = self.op("Slice", fine, self.ints(1), self.ints(2**62), self.ints(1))
                return self.op("Pad", later, self.ints(0, 0, 0, 0, 1, 0))
        return fine

    def written(self) -> ir.Model:
        x = self.positioned(self.embedded())
        x = self.spoiled(x)
        if self.drawing.single:
            is_spoiled = self.drawing.spoiler == "single"
            x = SingleOperators(self, WIDTH, is_spoiled=is_spoiled).of(x, self.drawing.single)
        if self.drawing.has_memory:
            heard = self.op("Gather", self.weights(LABELS, WIDTH), self.memory, axis=0)
            x = self.op("Add", x, self.op("ReduceSum", heard, self.ints(1), keepdims=1))
        for _ in range(self.drawing.layers):
            if self.drawing.local:
                x = self.op("Add", x, self.heard(x))
            y = self.normal(x)
            x = self.op("Add", x, self.attention(y))
            y = y if self.drawing.parallel else self.normal(x)
            x = self.op("Add", x, self.forward_part(y))
        if self.drawing.text:
            x = self.op(
                "Slice", x, self.op("Unsqueeze", self.letters, self.ints(0)), self.ints(2**63 - 1), self.ints(1)
            )
        if self.drawing.chain:
            narrow = self.op("MatMul", x, self.weights(WIDTH, CHAINED))
            spoiler = self.drawing.spoiler if self.drawing.spoiler in CHAIN_SPOILERS else ""
            fine = RatedChains(self).of(narrow, self.drawing.chain, spoiler)
            scores = self.op("MatMul", fine, self.weights(CHAINED, LABELS))
        else:
            scores = self.op("MatMul", self.normal(x), self.weights(WIDTH, LABELS))
        if self.drawing.rate:
            if self.drawing.is_returned:
                self.model.graph.outputs.append(self.op("Identity", scores))
            scores = self.at_rate(self.normal(x))
        scores.name = "scores"
        scores.dtype = ir.DataType.FLOAT
        self.model.graph.outputs.append(scores)
        infer_settled(self.model)
        return self.model


def whole_graph(drawing: Drawing) -> ir.Model:
    """The graph of a drawing, with inferred shapes."""
    return _Writer(drawing).written()


def session(model: ir.Model) -> onnxruntime.InferenceSession:
    """On one thread, quiet."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(graphs.serialized(model), options, providers=["CPUExecutionProvider"])


def in_calls(
    steps: ir.Model,
    caches: Mapping[str, str],
    feeds: Mapping[str, Array],
    lengths: Sequence[int],
    name: str = "scores",
    begins: Mapping[str, Array] = MappingProxyType({}),
) -> Array:
    """What a derived graph answers to a sequence that is cut into calls.

    Args:
        steps: the derived graph; frames are the second axis of inputs and answers.
        caches: outputs by the inputs that they feed.
        feeds: whole sequences, and what every call is given.
        lengths: frames of every call.
        name: of the answer.
        begins: one row of what caches hold in front of the first call, by input; nothing, or zeros, of others.
    """
    runs, rows = session(steps), next(iter(feeds.values())).shape[0]
    sizes = {"batch": rows, "past": 0}
    inputs = graphs.inputs_named(steps)
    states = {}
    for each in caches:
        shape = [dim if isinstance(dim, int) else sizes[str(dim)] for dim in graphs.dims_of(inputs[each]) or ()]
        kind = inputs[each].dtype
        assert kind is not None
        states[each] = np.full(shape, begins.get(each, 0), kind.numpy())
    timed = {key for key in feeds if "time" in map(str, inputs[key].shape or ())}
    answers, at = [], 0
    for length in lengths:
        chunk = {key: array[:, at : at + length] if key in timed else array for key, array in feeds.items()}
        found = runs.run([name, *caches.values()], {**chunk, **states})
        answers.append(found[0])
        states = dict(zip(caches, found[1:], strict=True))
        at += length
    return np.concatenate(answers, axis=1)


def lengths_of_calls(frames: int, random: np.random.Generator, chunk: int = 1, most: int | None = None) -> list[int]:
    """Draw lengths of calls that sum to `frames`: a prompt, then mostly steps; all but the last of whole chunks.

    Args:
        frames: together.
        random: draws them.
        chunk: frames of a whole one.
        most: frames of a call; None for any number.
    """
    longest = frames if most is None else min(most, frames)
    lengths = [int(random.integers(1, longest + 1)) // chunk * chunk or min(chunk, frames)]
    while (left := frames - sum(lengths)) > 0:
        lengths.append(min(left, chunk * int(random.choice([1, 1, 1, 2, 5]))))
    return lengths
