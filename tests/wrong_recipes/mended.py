"""Wrong recipes as somebody mends them who has read the message alone: the text that he changes, and what he writes."""

from collections.abc import Mapping

from tests.wrong_recipes.wrong import BATCH, CACHE, CACHED, FEATURES, FIRST, OFFSET, ONE, Wrong

RECIPE, MODEL, DATA = "mine.yaml", "model.py", "data.py"

MENDED: Mapping[str, tuple[str, str, str]] = {
    "a key that there is not": (RECIPE, "dtpye", "dtype"),
    "a number that YAML reads as text": (RECIPE, "1e-5", "1.0e-5"),
    "an element type that there is not": (RECIPE, "long", "int64"),
    "a bound of nothing": (RECIPE, "max_abs: 0.0", "max_abs: 0.001"),
    "an axis that is not declared": (RECIPE, "[batch, cache, 8]", "[batch, cached, 8]"),
    "an axis without a size": (RECIPE, "{length_input: filled}", "{window: 12, length_input: filled}"),
    "an axis with two kinds of size": (RECIPE, "{window: 8, fixed: 8}", "{window: 8}"),
    "an axis that no shape has": (RECIPE, f"{BATCH}\n      chunk:  {{fixed: 4}}", BATCH),
    "buckets in the wrong order": (RECIPE, "[4, 1]", "[1, 4]"),
    "two axes of rows": (RECIPE, "[batch, chunk, 6]", "[batch, 4, 6]"),
    "a length named as an input": (RECIPE, "length_input: offset", "length_input: filled"),
    "one name for length and mask": (RECIPE, "mask_input: n}", "mask_input: m}"),
    "a state that is no output": (RECIPE, "state: new_cache", "state: next_cache"),
    "an output listed twice": (RECIPE, "[next_cache, next_cache]", "[logits, next_cache]"),
    "a growing state that begins with a number": (RECIPE, ", initial: 0.5", ""),
    "a growing state of a fixed size": (RECIPE, "{fixed: 8}", "{window: 8}"),
    "a growing state with buckets": (RECIPE, "{buckets: [8], length_input: filled}", "{window: 8}"),
    "outputs in another order": (RECIPE, "[next_cache, logits]", "[logits, next_cache]"),
    "a result that is not listed": (RECIPE, "outputs: [next_cache]", "outputs: [first, next_cache]"),
    "a result that there is not": (RECIPE, "[logits, next_cache, scores]", "[logits, next_cache]"),
    "a state that comes back in another type": (MODEL, "joined.double()", "joined.double().float()"),
    "a window that one call overfills": (RECIPE, "{window: 3}", "{window: 4}"),
    "new frames alone": (RECIPE, CACHED, "cached: {window: 8, update: append}"),
    "a whole cache that is to be appended": (RECIPE, ", update: append", ""),
    "a count of what is no axis": (RECIPE, "counts: frames", "counts: cached"),
    "one count for all rows": (RECIPE, "offset:   {shape: []", "offset:   {shape: [batch]"),
    "a count of fractions": (RECIPE, "dtype: float32, counts", "dtype: int32, counts"),
    "a count that is a state as well": (RECIPE, ", state: logits", ""),
    "a model of one row": (MODEL, "features.view(1, 4, 6)", "features.view(-1, 4, 6)"),
    "an original for one input": (RECIPE, "original: [4, 6], ", ""),
    "a result that sums rows up": (MODEL, ".sum(0)", ".sum(1)"),
    "inputs in another order": (RECIPE, f"{CACHE}\n      {FEATURES}", f"{FEATURES}\n      {CACHE}"),
    "an input of another size": (RECIPE, "[batch, cached, 9]", "[batch, cached, 8]"),
    "an input of another name than the data's": (RECIPE, "feature: {", "features: {"),
    "a shape without rows": (RECIPE, "[4, 6]", "[batch, 4, 6]"),
    "one row as a number": (RECIPE, "[1, 4, 6]", "[batch, 4, 6]"),
    "a chunk of another size": (RECIPE, "[batch, 5, 6]", "[batch, 4, 6]"),
    "whole numbers for features": (RECIPE, "dtype: int64, range", "dtype: float32, range"),
    "a cache of another type": (RECIPE, "float16", "float32"),
    "a state that is not declared": (RECIPE, "8], dtype: float32}", "8], dtype: float32, state: next_cache}"),
    "a count that is not declared": (RECIPE, "dtype: int64}", "dtype: int64, counts: cached}"),
    "data declared as a state": (RECIPE, ", state: logits", ""),
    "features that are counted": (RECIPE, "dtype: float32, counts: cached", "dtype: float32"),
    "a state from another output": (RECIPE, "state: logits", "state: next_cache"),
    "a cache with buckets": (RECIPE, "cached: {buckets: [8]}", "cached: {window: 8}"),
    "rows with a window": (RECIPE, "batch:  {window: 4}", "batch:  {buckets: [4]}"),
    "a first call that takes caches": (RECIPE, FIRST.replace("source", "first_call") + "\n    ", ""),
    "one output without a list": (RECIPE, "outputs: logits", "outputs: [logits, next_cache]"),
    "a target without a dash": (RECIPE, "  kind: onnx_static", "  - kind: onnx_static"),
    "a factory that takes arguments": (MODEL, "def build(width):", "def build(width=8):"),
    "data without rows": (DATA, "(4, 6), np.float32)", "(4, 6), np.float32)[None]"),
    "a stream that is one feed": (DATA, ONE, f"[{ONE}] * 8"),
    "an input that forward lacks": (RECIPE, f"\n      speaker:  {OFFSET.partition(':')[2].strip()}", ""),
    "a table that ends with the first call": (MODEL, "nn.Embedding(4, 8)", "nn.Embedding(4000, 8)"),
    "a number among the results": (MODEL, "joined, 4", "joined"),
    "results by name in another order": (
        MODEL,
        '{"next_cache": joined, "logits": self.output(x)}',
        '{"logits": self.output(x), "next_cache": joined}',
    ),
    "a module that there is not": (RECIPE, "modell:build", "model:build"),
    "a name that the module lacks": (RECIPE, "model:make", "model:build"),
    "a factory that gives no module": (MODEL, "return Recogniser", "return Recogniser()"),
    "a factory that fails": (MODEL, "Recogniser(9)", "Recogniser()"),
    "a checkpoint that is not there": (RECIPE, ", checkpoint: weights.safetensors", ""),
    "data of another type": (DATA, ".astype(np.float64)", ".astype(np.float64).astype('float32')"),
    "data of two rows": (DATA, "(2, 4, 6)", "(1, 4, 6)"),
    "data beyond the range": (RECIPE, "range: [0.0, 1.0]", "range: [9.0, 10.0]"),
    "fewer streams than promised": (RECIPE, "count: 3", "count: 2"),
    "streams shorter than the gate": (DATA, "range(5)", "range(8)"),
    "a pass that there is not": (RECIPE, "[standrad]", "[standard]"),
    "passes in an order that cannot be": (RECIPE, "[window_states, pad_axes]", "[pad_axes, window_states]"),
    "rounding without a limit": (RECIPE, "steps: 8}", "steps: 8, lossy: {max_abs: 0.5, sqnr_db: 25}}"),
    "an option that a pass lacks": (RECIPE, "{round: 3}", "{rounds: 3}"),
    "a target that there is not": (RECIPE, "kind: onnx", "kind: onnx_static"),
    "a gate of another graph": (RECIPE, "recognizer", "recogniser"),
    "too few steps to fill the window": (RECIPE, "chained_steps: 3", "chained_steps: 4"),
}


def mended(wrong: Wrong) -> dict[str, str]:
    """The wrong files with what the message says put right."""
    file, old, new = MENDED[wrong.what]
    files = wrong.files()
    assert files[file].count(old) == 1, f"{wrong.what}: {old!r} is not there once"
    return {**files, file: files[file].replace(old, new)}
