"""The page docs/recipe.md: every key of a recipe, from the records that read it, with an example that a test loads.

python -m tests.docs.recipe_page
"""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic_core import PydanticUndefined

from compiler.recipe.field_types import FilePath, Name, ObjectName, Record, TensorName
from compiler.recipe.record import Recipe

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipe.md"

MARK = "<!-- Written by `python -m tests.docs.recipe_page` from the docstrings of compiler/recipe. -->"
"""What stands above it in the page is written by hand."""


ENTRY_OF = {"graphs": "graph", "inputs": "input", "axes": "axis", "parity": "graph", "targets": "target"}
"""What the entries of a mapping are called in a path: `graphs.<graph>`."""


@dataclasses.dataclass(frozen=True)
class Example:
    """A value of a key as YAML, where a test sets it, and what must be set beside it for the recipe to hold."""

    value: str
    place: str
    beside: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """As it stands in a recipe."""
        return f"{self.place.rpartition('.')[2]}: {self.value}"


def sections() -> dict[type[Record], list[str]]:
    """Every record of a recipe with the paths where it stands, in the order of the recipe."""
    found: dict[type[Record], list[str]] = {}
    _collect(Recipe, "", found)
    return found


def _collect(record: type[Record], path: str, found: dict[type[Record], list[str]]) -> None:
    found.setdefault(record, []).append(path)
    for name, field in record.model_fields.items():
        for inner, suffix in _records(field.annotation, name):
            _collect(inner, f"{path}.{name}{suffix}".lstrip("."), found)


def _records(kind: Any, name: str) -> Iterator[tuple[type[Record], str]]:
    """The records within a field's type, and how a path goes on to them."""
    if inspect.isclass(kind) and issubclass(kind, Record):
        yield kind, ""
    elif get_origin(kind) is dict:
        yield from ((inner, f".<{ENTRY_OF[name]}>{rest}") for inner, rest in _records(get_args(kind)[1], name))
    elif get_origin(kind) is tuple:
        yield from ((inner, f"[]{rest}") for inner, rest in _records(get_args(kind)[0], name))
    else:
        for part in get_args(kind):
            yield from _records(part, name)


def meanings(record: type[Record]) -> dict[str, str]:
    """What the docstrings of a record and its bases say of each attribute."""
    told: dict[str, str] = {}
    for each in reversed(record.__mro__[: record.__mro__.index(Record)]):
        if "__doc__" in vars(each):
            told |= attributes_told(each)
    return {name: re.sub(r"\bNone\b", "none", text) for name, text in told.items()}


def attributes_told(record: type) -> dict[str, str]:
    """What a docstring says of each attribute, on one line."""
    _, _, attributes = (inspect.getdoc(record) or "").partition("Attributes:\n")
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".") for name, text in found}


def every_key() -> Iterator[tuple[type[Record], str]]:
    """Every key of a recipe: the record and the field."""
    yield from ((record, name) for record in sections() for name in record.model_fields)


def is_section(record: type[Record], name: str) -> bool:
    """Whether a key holds a record, or several by name, whose keys have a table of their own."""
    kind = record.model_fields[name].annotation
    return any(True for _ in _records(kind, name))


def type_of(kind: Any) -> str:
    """A field's type in words."""
    known = {ObjectName: "`module:name`", FilePath: "path", Name: "name", TensorName: "name", Any: "any"}
    for each, word in known.items():
        if kind == each:
            return word
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_of(parts[0]) + "".join(_bound(each) for each in parts[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_of(each) for each in parts if each is not types.NoneType))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in parts)
    if origin is tuple:
        return f"list: {type_of(parts[0])}"
    if origin is dict:
        return f"{type_of(parts[0])}: {type_of(parts[1])}"
    if inspect.isclass(kind) and issubclass(kind, Record):
        return "section"
    return {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}[kind]


def _bound(field: Any) -> str:
    """The bounds that an annotation carries, in words."""
    parts = [*getattr(field, "metadata", ()), field]
    words = {"ge": "at least", "gt": "above"}
    return "".join(
        f", {word} {getattr(each, key)}" for each in parts for key, word in words.items() if hasattr(each, key)
    )


def _field_type(record: type[Record], name: str) -> str:
    """As the record writes it, so that names, paths and objects are told from other text."""
    return type_of(get_type_hints(record, include_extras=True)[name])


def _default(field: pydantic.fields.FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    value = field.default if field.default is not PydanticUndefined else field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple) and isinstance(value[0], Record):
        return "`[standard]`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def page() -> str:
    """The text of docs/recipe.md: what is written by hand, and the tables."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    lines = [before + MARK]
    for record, paths in sections().items():
        title = ", ".join(f"`{path}`" for path in paths) if paths != [""] else "The recipe"
        first, _, _ = (inspect.getdoc(record) or "").partition("\n")
        lines += [
            "",
            f"## {title}",
            "",
            first,
            "",
            "| key | type | default | meaning | example |",
            "|---|---|---|---|---|",
        ]
        told = meanings(record)
        for name, field in record.model_fields.items():
            example = "below" if is_section(record, name) else f"`{EXAMPLES[f'{record.__name__}.{name}'].line}`"
            row = (f"`{name}`", _field_type(record, name), _default(field), told[name], example)
            lines.append("| " + " | ".join(each.replace("|", "\\|") for each in row) + " |")
    return "\n".join(lines) + "\n"


GRAPH = "graphs.recogniser"
TAGGER = "graphs.tagger"

WIRING = "wiring=[{from_graph: recogniser, output: logits, to_graph: tagger, input: features}]"

TOGETHER = 'gates.pipeline={feeds: "my_data:together", count: 2, max_abs: 1.0e-5}'

WHOLE = "graphs.speller"

EXAMPLES: Mapping[str, Example] = {
    "Recipe.source_lines": Example("false", "source_lines"),
    "Latency.of": Example("asr", f"{GRAPH}.latency.of", (f"{GRAPH}.latency={{of: asr, name: fast}}",)),
    "Latency.name": Example("fast", f"{GRAPH}.latency.name", (f"{GRAPH}.latency={{of: asr, name: exact}}",)),
    "Source.arguments": Example("{layers: 12, look_ahead: 4}", f"{GRAPH}.source.arguments"),
    "DeriveSteps.along": Example("time", f"{WHOLE}.derive_steps.along"),
    "DeriveSteps.window": Example("512", f"{WHOLE}.derive_steps.window"),
    "DeriveSteps.chunk": Example("16", f"{WHOLE}.derive_steps.chunk"),
    "DeriveSteps.forget": Example("true", f"{WHOLE}.derive_steps.forget"),
    "ShareHeads.groups": Example("4", f"{WHOLE}.share_heads.groups"),
    "ShareHeads.updates": Example("5000", f"{WHOLE}.share_heads.updates"),
    "ShareHeads.minutes": Example("60.0", f"{WHOLE}.share_heads.minutes"),
    "ShareHeads.rows": Example("8", f"{WHOLE}.share_heads.rows"),
    "ShareHeads.rate": Example("5.0e-4", f"{WHOLE}.share_heads.rate"),
    "ShareHeads.seed": Example("2", f"{WHOLE}.share_heads.seed"),
    "ShareHeads.answers": Example("classes", f"{WHOLE}.share_heads.answers"),
    "ShareHeads.skip": Example("26", f"{WHOLE}.share_heads.skip"),
    "ShareHeads.limit": Example("0.1", f"{WHOLE}.share_heads.limit"),
    "PipelineGate.feeds": Example('"my_data:together"', "gates.pipeline.feeds", (WIRING, TOGETHER)),
    "PipelineGate.count": Example("4", "gates.pipeline.count", (WIRING, TOGETHER)),
    "PipelineGate.max_abs": Example("1.0e-4", "gates.pipeline.max_abs", (WIRING, TOGETHER)),
    "PipelineGate.files": Example("[recordings]", "gates.pipeline.files", (WIRING, TOGETHER)),
    "Recipe.name": Example("mine", "name"),
    "Recipe.front_end": Example("{sample_rate_hz: 16000}", "front_end"),
    "Wire.from_graph": Example("recogniser", "wiring.0.from_graph", (WIRING, TOGETHER)),
    "Wire.output": Example("logits", "wiring.0.output", (WIRING, TOGETHER)),
    "Wire.to_graph": Example("tagger", "wiring.0.to_graph", (WIRING, TOGETHER)),
    "Wire.input": Example("features", "wiring.0.input", (WIRING, TOGETHER)),
    "Voice.step": Example("speller", "voice.step"),
    "Voice.tokens": Example("tokens", "voice.tokens"),
    "Voice.scores": Example("scores", "voice.scores"),
    "Voice.start": Example("512", "voice.start"),
    "Voice.codec": Example("vocoder", "voice.codec"),
    "Voice.codes": Example("codes", "voice.codes"),
    "Voice.noise": Example("noise", "voice.noise"),
    "Voice.sound": Example("sound", "voice.sound"),
    "Voice.samples_per_frame": Example("320", "voice.samples_per_frame"),
    "Voice.sample_rate_hz": Example("16000", "voice.sample_rate_hz"),
    "FrameLimit.input": Example("text", "voice.frames.input"),
    "FrameLimit.per_entry": Example("12.0", "voice.frames.per_entry"),
    "FrameLimit.more": Example("25", "voice.frames.more"),
    "Sampling.max_tokens": Example("500", "voice.sampling.max_tokens"),
    "Sampling.stop": Example("[512]", "voice.sampling.stop"),
    "Sampling.min_tokens": Example("5", "voice.sampling.min_tokens"),
    "Sampling.temperature": Example("0.8", "voice.sampling.temperature"),
    "Sampling.top_k": Example("50", "voice.sampling.top_k"),
    "Sampling.top_p": Example("0.9", "voice.sampling.top_p"),
    "Sampling.repetition_penalty": Example("1.1", "voice.sampling.repetition_penalty"),
    "Sampling.penalty_window": Example("50", "voice.sampling.penalty_window"),
    "Graph.outputs": Example("[logits, next_cache]", f"{GRAPH}.outputs"),
    "Graph.flush": Example(
        "{features: 6}",
        f"{GRAPH}.flush",
        (
            f"{GRAPH}.inputs.features.shape=[batch, chunk, 40]",
            f"{GRAPH}.axes.chunk={{buckets: [8], length_input: chunk_length}}",
        ),
    ),
    "Graph.flush_values": Example(
        "{features: -11.5}",
        f"{GRAPH}.flush_values",
        (
            f"{GRAPH}.inputs.features.shape=[batch, chunk, 40]",
            f"{GRAPH}.axes.chunk={{buckets: [8], length_input: chunk_length}}",
            f"{GRAPH}.flush={{features: 6}}",
        ),
    ),
    "Source.factory": Example('"my_model:build"', f"{GRAPH}.source.factory"),
    "Source.onnx": Example("model.onnx", f"{GRAPH}.source.onnx", (f"{GRAPH}.source.factory=null",)),
    "Source.checkpoint": Example("weights.safetensors", f"{GRAPH}.source.checkpoint"),
    "Source.files": Example("[vocabulary.txt]", f"{GRAPH}.source.files"),
    "Source.cast": Example("true", f"{GRAPH}.source.cast", (f"{GRAPH}.source.checkpoint=weights.safetensors",)),
    "Input.shape": Example("[batch, 8, 40]", f"{GRAPH}.inputs.features.shape"),
    "Input.dtype": Example("float32", f"{GRAPH}.inputs.features.dtype"),
    "Input.state": Example("next_cache", f"{GRAPH}.inputs.cache.state"),
    "Input.initial": Example(
        "[[[0.5], [-0.25]]]",
        f"{GRAPH}.inputs.cache.initial",
        (f"{GRAPH}.inputs.cache.shape=[batch, 2, 64]", f"{GRAPH}.axes={{batch: {{buckets: [1, 4]}}}}"),
    ),
    "Input.mask_of": Example("time", f"{TAGGER}.inputs.mask.mask_of"),
    "Input.pad_mask_of": Example("time", f"{TAGGER}.inputs.hidden.pad_mask_of"),
    "Input.counts": Example("cached", "graphs.spotter.inputs.offset.counts"),
    "Input.length_of": Example("time", f"{TAGGER}.inputs.lengths.length_of"),
    "Input.original": Example(
        "[1, 8, 40]",
        f"{GRAPH}.inputs.features.original",
        (f"{GRAPH}.inputs.cache.original=[cached, 64]",),
    ),
    "Input.range": Example("[-1.0, 1.0]", f"{GRAPH}.inputs.features.range"),
    "Input.example": Example("0.5", f"{GRAPH}.inputs.features.example"),
    "Input.constant": Example(
        "0.5", f"{GRAPH}.inputs.features.constant", (f"{GRAPH}.inputs.features.shape=[1, 8, 40]",)
    ),
    "Axis.fixed": Example("1", f"{GRAPH}.axes.batch.fixed", (f"{GRAPH}.axes.batch.buckets=null",)),
    "Axis.buckets": Example("[1, 4, 16]", f"{GRAPH}.axes.batch.buckets"),
    "Axis.window": Example("128", f"{GRAPH}.axes.cached.window"),
    "Axis.length_input": Example("cached_frames", f"{GRAPH}.axes.cached.length_input"),
    "Axis.mask_input": Example("mask", f"{GRAPH}.axes.cached.mask_input"),
    "Axis.update": Example("append", f"{GRAPH}.axes.cached.update"),
    "PassSpec.name": Example("[standard, project_positions]", f"{GRAPH}.passes"),
    "PassSpec.options": Example("[standard, quantize_dynamic: {pins: [output]}]", f"{GRAPH}.passes"),
    "Feeds.feeds": Example('"my_data:verification"', "data.verification.feeds"),
    "Feeds.count": Example("16", "data.verification.count"),
    "Feeds.files": Example("[recordings]", "data.verification.files"),
    "Target.kind": Example("[{kind: onnx_static}]", "targets"),
    "Target.options": Example('[{kind: tensorrt, compute_capability: "7.5"}]', "targets"),
    "LossyTolerance.max_abs": Example("0.5", "gates.parity.recogniser.lossy.max_abs"),
    "LossyTolerance.sqnr_db": Example("25.0", "gates.parity.recogniser.lossy.sqnr_db"),
    "LossyTolerance.min_equal": Example("0.98", "gates.parity.recogniser.lossy.min_equal"),
    "ParityGate.max_abs": Example("1.0e-5", "gates.parity.recogniser.max_abs"),
    "ParityGate.sqnr_db": Example("60.0", "gates.parity.recogniser.sqnr_db"),
    "ParityGate.min_equal": Example("0.999", "gates.parity.recogniser.min_equal"),
    "ParityGate.chained_steps": Example("30", "gates.parity.recogniser.chained_steps"),
    "ParityGate.max_form_loss_db": Example("0.5", "gates.parity.recogniser.max_form_loss_db"),
    "ParityGate.edges": Example("[silence, impulse]", "gates.parity.recogniser.edges"),
    "DriftGate.steps": Example("2000", "gates.parity.recogniser.drift.steps"),
    "DriftGate.max_growth": Example("1.2", "gates.parity.recogniser.drift.max_growth"),
    "TaskGate.recordings": Example('"my_task:recordings"', "gates.task.recordings"),
    "TaskGate.decode": Example('"my_task:decode"', "gates.task.decode"),
    "TaskGate.metric": Example('"my_task:error_rate"', "gates.task.metric"),
    "TaskGate.max_increase": Example("0.001", "gates.task.max_increase"),
    "TaskGate.identical": Example("true", "gates.task.identical"),
    "TaskGate.files": Example("[testset]", "gates.task.files"),
    "TaskGate.graph": Example("recogniser", "gates.task.graph"),
    "BudgetGate.size_mb": Example("40.0", "gates.budget.size_mb"),
    "BudgetGate.p95_ms": Example("20.0", "gates.budget.p95_ms"),
    "BudgetGate.max_time_ratio": Example("0.9", "gates.budget.max_time_ratio"),
    "BudgetGate.max_size_ratio": Example("0.4", "gates.budget.max_size_ratio"),
}
"""One value per key that is no section of its own; a test writes each into a recipe and loads it."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
