"""Defines and checks a recipe's voice: which of the graphs turn text into sound, and how tokens are sampled."""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

import pydantic
from pydantic import Field

from compiler.base.did_you_mean import did_you_mean
from compiler.recipe.field_types import Name, Positive, Record, TensorName, disagree
from compiler.recipe.graph import Graph
from runtime_lite.errors import BadInput
from runtime_lite.format import sampling as runtime_sampling


class Sampling(Record):
    """How tokens are drawn where a caller does not say: repetition penalty, then temperature, `top_k` and `top_p`.

    Attributes:
        max_tokens: most tokens of a voice, whatever its text.
        stop: tokens that are no frames and end a voice; the codec takes all others.
        min_tokens: tokens before which no stop token is drawn.
        temperature: divides the scores, above 0; none takes the token of the highest score.
        top_k: number of tokens with the highest scores that may be drawn; none for all.
        top_p: the fewest likeliest tokens that together have this probability may be drawn, above 0 and at most 1.
        repetition_penalty: from 1 on; scores of recent tokens are made that many times smaller.
        penalty_window: number of recent tokens that are penalised.
    """

    max_tokens: Positive
    stop: tuple[int, ...] = ()
    min_tokens: int = 0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    penalty_window: int = 64

    @pydantic.model_validator(mode="after")
    def _hold(self) -> Self:
        try:
            self.of_runtime()
        except BadInput as error:
            message, _, cure = str(error).removeprefix("Sampling: ").rpartition("; ")
            name, _, message = message.partition(": ")
            raise disagree(message, cure, name) from None
        return self

    def of_runtime(self) -> runtime_sampling.Sampling:
        """Return the settings as the runtime takes them.

        Raises:
            BadInput: one is out of its range.
        """
        return runtime_sampling.Sampling(**{**self.model_dump(), "stop": frozenset(self.stop)})


class FrameLimit(Record):
    """The most frames of a voice by the length of its text: `per_entry` times its entries, and `more`.

    Attributes:
        input: input of the step that takes the text; the size of its axis other than that of rows is the length.
        per_entry: frames of an entry.
        more: frames of a text without entries.
    """

    input: TensorName
    per_entry: Annotated[float, Field(ge=0)]
    more: Positive


class Voice(Record):
    """Which graphs make sound of a text: a step scores the next token, and a codec makes sound of tokens.

    Attributes:
        step: graph of one step, which has states.
        tokens: its input of whole numbers, `[rows, count]`, that takes the prompt and then every token that was drawn.
        scores: its output whose last row has the scores of the next token.
        start: token that is fed behind the prompt; none for none.
        codec: graph with states that takes tokens chunk by chunk, each of them a frame.
        codes: its input of tokens; its sizes but those of rows and frames are 1.
        noise: its input of float32 that takes normal random numbers; none for none.
        sound: its output, with `samples_per_frame` numbers for every frame.
        samples_per_frame: samples that a token becomes.
        sample_rate_hz: samples per second.
        frames: the most frames of a voice by its text; none for the most tokens of `sampling` whatever the text.
        sampling: how tokens are drawn where a caller does not say.
    """

    step: Name
    tokens: TensorName
    scores: TensorName
    start: Annotated[int, Field(ge=0)] | None = None
    codec: Name
    codes: TensorName
    noise: TensorName | None = None
    sound: TensorName
    samples_per_frame: Positive
    sample_rate_hz: Positive
    frames: FrameLimit | None = None
    sampling: Sampling


def check_voice(voice: Voice, graphs: Mapping[str, Graph]) -> None:
    """Check that the graphs have what a voice names; what they become is checked when they are built.

    Raises:
        PydanticCustomError: a check fails; the error has the keys of the voice.
    """
    for key, name in (("step", voice.step), ("codec", voice.codec)):
        _require(name, graphs, "graph", key)
    if voice.step == voice.codec:
        message = f"expected another graph than the step, got {voice.codec!r} for both"
        raise disagree(message, "name the graph that makes sound of tokens", "voice", "codec")
    step, codec = graphs[voice.step], graphs[voice.codec]
    _require(voice.tokens, _fed(step), "input that callers feed", "tokens")
    _require(voice.scores, step.outputs, "output", "scores")
    _require(voice.codes, _fed(codec), "input that callers feed", "codes")
    _require(voice.sound, codec.outputs, "output", "sound")
    if voice.noise is not None:
        _require(voice.noise, _fed(codec), "input that callers feed", "noise")
    if voice.frames is not None:
        _require(voice.frames.input, _fed(step), "input that callers feed", "frames", "input")
    for key, graph, name in (("tokens", step, voice.tokens), ("codes", codec, voice.codes)):
        dtype = graph.inputs[name].dtype
        if dtype not in ("int32", "int64"):
            message = f"expected an input of int32 or int64, got {name!r} of {dtype}"
            raise disagree(message, "name the input that takes tokens", "voice", key)


def _fed(graph: Graph) -> list[str]:
    return [name for name, given in graph.inputs.items() if given.is_data]


def _require(name: str, known: Collection[str], what: str, *keys: str) -> None:
    if name not in known:
        article = "an" if what[0] in "aeiou" else "a"
        raise disagree(
            f"expected the name of {article} {what}, got {name!r}", did_you_mean(name, known), "voice", *keys
        )
