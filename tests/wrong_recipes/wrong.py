"""Wrong recipes, models and data: the good ones with one line changed."""

import dataclasses

from tests.wrong_recipes.good import FILES


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Something wrong.

    Attributes:
        what: is wrong, in a few words.
        old: text of the good file, which is there once.
        new: what stands there instead.
        file: the file that is changed.
    """

    what: str
    old: str
    new: str
    file: str = "mine.yaml"

    def files(self) -> dict[str, str]:
        """The files, with the change."""
        assert FILES[self.file].count(self.old) == 1, f"{self.what}: {self.old!r} is not there once"
        return {**FILES, self.file: FILES[self.file].replace(self.old, self.new)}


FIRST = 'source: {factory: "model:build"}'
CACHE = "cache:    {shape: [batch, cached, 8], dtype: float32, state: next_cache}"
BATCH = "batch:  {buckets: [1, 4]}"
CACHED = "cached: {window: 8}"
FEATURES = "features: {shape: [batch, 4, 6], dtype: float32, range: [0.0, 1.0]}"
OFFSET = "offset:   {shape: [batch], dtype: int64, counts: cached}"
GATE = "parity: {recogniser: {max_abs: 1.0e-5, chained_steps: 8}}"
ONE = '{"features": random.random((1, 4, 6), np.float32)}'
FEED = 'yield [{"features": random.random((1, 4, 6), np.float32)} for _ in range(8)]'
ANSWER = "return self.output(x), joined"

WRONG: tuple[Wrong, ...] = (
    # what YAML says
    Wrong("a key that there is not", "dtype: int64, counts", "dtpye: int64, counts"),
    Wrong("a number that YAML reads as text", "max_abs: 1.0e-5", "max_abs: 1e-5"),
    Wrong("an element type that there is not", "dtype: int64", "dtype: long"),
    Wrong("a bound of nothing", "max_abs: 1.0e-5", "max_abs: 0.0"),
    # shapes and axes
    Wrong("an axis that is not declared", "[batch, cached, 8]", "[batch, cache, 8]"),
    Wrong("an axis without a size", CACHED, "cached: {length_input: filled}"),
    Wrong("an axis with two kinds of size", CACHED, "cached: {window: 8, fixed: 8}"),
    Wrong("an axis that no shape has", BATCH, f"{BATCH}\n      chunk:  {{fixed: 4}}"),
    Wrong("buckets in the wrong order", "[1, 4]", "[4, 1]"),
    Wrong("a length on a fixed axis", BATCH, "batch:  {fixed: 1, length_input: rows}"),
    Wrong("two axes of rows", "[batch, 4, 6]", "[batch, chunk, 6]"),
    Wrong("a length named as an input", CACHED, "cached: {window: 8, length_input: offset}"),
    Wrong("one name for length and mask", CACHED, "cached: {window: 8, length_input: n, mask_input: n}"),
    Wrong("a mask of no padded axis", OFFSET, OFFSET.replace("counts: cached", "mask_of: cached")),
    Wrong("a constant along the rows", FEATURES, FEATURES.replace("range: [0.0, 1.0]", "constant: 0.5")),
    Wrong("a constant that is counted, too", "counts: cached}", "counts: cached, constant: 3}"),
    # states
    Wrong("a state that is no output", "state: next_cache", "state: new_cache"),
    Wrong("an output listed twice", "[logits, next_cache]", "[next_cache, next_cache]"),
    Wrong("one output for two states", OFFSET, "offset:   {shape: [batch], dtype: int64, state: next_cache}"),
    Wrong("a growing state that begins with a number", "state: next_cache}", "state: next_cache, initial: 0.5}"),
    Wrong("a growing state of a fixed size", CACHED, "cached: {fixed: 8}"),
    Wrong("a growing state with buckets", CACHED, "cached: {buckets: [8], length_input: filled}"),
    Wrong("outputs in another order", "[logits, next_cache]", "[next_cache, logits]"),
    Wrong("a result that is not listed", "outputs: [logits, next_cache]", "outputs: [next_cache]"),
    Wrong("a result that there is not", "[logits, next_cache]", "[logits, next_cache, scores]"),
    Wrong("a state that comes back in another type", ANSWER, "return self.output(x), joined.double()", file="model.py"),
    Wrong("a state that comes back with other axes", ANSWER, "return self.output(x), joined[:, None]", file="model.py"),
    Wrong("a window that one call overfills", CACHED, "cached: {window: 3}"),
    Wrong("new frames alone", ANSWER, "return self.output(x), joined[:, -4:]", file="model.py"),
    Wrong("a whole cache that is to be appended", CACHED, "cached: {window: 8, update: append}"),
    # counts and rows
    Wrong("a count of what is no axis", "counts: cached", "counts: frames"),
    Wrong("a count of rows", "counts: cached", "counts: batch"),
    Wrong("one count for all rows", "offset:   {shape: [batch]", "offset:   {shape: []"),
    Wrong("a count of fractions", "dtype: int64, counts", "dtype: float32, counts"),
    Wrong("a count that is a state as well", "counts: cached", "counts: cached, state: logits"),
    Wrong("a model of one row", "self.embed(features)", "self.embed(features.view(1, 4, 6))", file="model.py"),
    Wrong("an original for one input", FEATURES, FEATURES.replace("range", "original: [4, 6], range")),
    Wrong("a result that sums rows up", ANSWER, "return self.output(x).sum(0), joined", file="model.py"),
    # the call
    Wrong("inputs in another order", f"{FEATURES}\n      {CACHE}", f"{CACHE}\n      {FEATURES}"),
    Wrong("an input of another size", "[batch, cached, 8]", "[batch, cached, 9]"),
    Wrong("an input of another name than the data's", "features: {", "feature: {"),
    Wrong("a shape without rows", "[batch, 4, 6]", "[4, 6]"),
    Wrong("one row as a number", "[batch, 4, 6]", "[1, 4, 6]"),
    Wrong("a chunk of another size", "[batch, 4, 6]", "[batch, 5, 6]"),
    Wrong("whole numbers for features", FEATURES, FEATURES.replace("float32", "int64")),
    Wrong("a cache of another type", CACHE, CACHE.replace("float32", "float16")),
    Wrong("a state that is not declared", ", state: next_cache", ""),
    Wrong("a count that is not declared", ", counts: cached", ""),
    Wrong("data declared as a state", FEATURES, FEATURES.replace("range: [0.0, 1.0]", "state: logits")),
    Wrong("features that are counted", FEATURES, FEATURES.replace("range: [0.0, 1.0]", "counts: cached")),
    Wrong("a state from another output", "state: next_cache", "state: logits"),
    Wrong("a cache with buckets", CACHED, "cached: {buckets: [8]}"),
    Wrong("rows with a window", BATCH, "batch:  {window: 4}"),
    Wrong("a first call that takes caches", FIRST, FIRST.replace("source", "first_call") + f"\n    {FIRST}"),
    Wrong("one output without a list", "[logits, next_cache]", "logits"),
    Wrong("a target without a dash", "  - kind: onnx_static", "  kind: onnx_static"),
    Wrong("an input that forward lacks", OFFSET, f"{OFFSET}\n      speaker:  {OFFSET.partition(':')[2].strip()}"),
    Wrong("a table that ends with the first call", "nn.Embedding(1000, 8)", "nn.Embedding(4, 8)", file="model.py"),
    Wrong("a number among the results", ANSWER, "return self.output(x), joined, 4", file="model.py"),
    Wrong(
        "results by name in another order",
        ANSWER,
        'return {"next_cache": joined, "logits": self.output(x)}',
        file="model.py",
    ),
    # code that is named
    Wrong("a factory that takes arguments", "def build():", "def build(width):", file="model.py"),
    Wrong("a module that there is not", '"model:build"', '"modell:build"'),
    Wrong("a name that the module lacks", '"model:build"', '"model:make"'),
    Wrong("a factory that gives no module", "return Recogniser()", "return Recogniser", file="model.py"),
    Wrong("a factory that fails", "return Recogniser()", "return Recogniser(9)", file="model.py"),
    Wrong("a checkpoint that is not there", '"model:build"', '"model:build", checkpoint: weights.safetensors'),
    Wrong("a file that is not there", '"model:build"', '"model:build", files: [words.txt]'),
    # data
    Wrong("data with a state", '{"features":', '{"offset": np.zeros(1, np.int64), "features":', file="data.py"),
    Wrong("data of another type", "np.float32)}", "np.float32).astype(np.float64)}", file="data.py"),
    Wrong("data without rows", "(1, 4, 6)", "(4, 6)", file="data.py"),
    Wrong("a stream that is one feed", f"[{ONE} for _ in range(8)]", ONE, file="data.py"),
    Wrong("data of two rows", "(1, 4, 6)", "(2, 4, 6)", file="data.py"),
    Wrong("data beyond the range", "random.random(", "9 + random.random(", file="data.py"),
    Wrong("data that are not numbers", "random.random(", "np.nan * random.random(", file="data.py"),
    Wrong("fewer streams than promised", "count: 2", "count: 3"),
    Wrong("streams shorter than the gate", "range(8)]", "range(5)]", file="data.py"),
    Wrong("a generator that fails", FEED, "yield [features]", file="data.py"),
    # passes, targets, gates
    Wrong("a pass that there is not", "[standard]", "[standrad]"),
    Wrong("passes in an order that cannot be", "[standard]", "[window_states, pad_axes]"),
    Wrong("rounding without a limit", "[standard]", "[standard, lower_precision]"),
    Wrong("an option that a pass lacks", "[standard]", "[standard, simplify: {round: 3}]"),
    Wrong("a target that there is not", "kind: onnx_static", "kind: onnx"),
    Wrong("one target twice", "- kind: onnx_static", "- kind: onnx_static\n  - kind: onnx_static"),
    Wrong("a gate of another graph", "parity: {recogniser:", "parity: {recognizer:"),
    Wrong("too few steps to fill the window", "chained_steps: 8", "chained_steps: 3"),
)  # fmt: skip
