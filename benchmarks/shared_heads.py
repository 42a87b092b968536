"""Measures the loss of merging heads of the trained voice, by method, on sentences that no method was fitted to.

    python -m benchmarks.shared_heads --recordings RECORDINGS
    python -m benchmarks.shared_heads --recordings RECORDINGS --distilled distilled.safetensors

The graph is the speech model of `tts_ar.yaml` over whole sequences; `merge_kv_heads` lets its 16 heads share keys and
values in groups, by the plain mean, by the mean of rotated heads, and by the maps that lose least, each with its
projection behind as it is folded and fitted anew. It measures on training sentences. Two figures per method, on all
codes of the test sentences, each behind the prompt of its voice: the error of the attentions' results beside those of
the original at the same place, |y - y'| / |y|, layer by layer, errors of the layers in front included; and the negative
logarithm of the probability of the right code, in nats, when the codes before it are the right ones.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import exposed
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes import make_pass
from compiler.passes.merge_kv_heads import in_plain_form
from compiler.recipe.load import load_recipe
from compiler.rewriting.attention.attention import find_attentions
from examples.codec_tts import prompt, recordings, speak, spoken_codes, train_speech
from tests.kit.calibration import with_streams

RECIPE, GRAPH = "tts_ar.yaml", "speech"

METHODS = ("mean", "rotated_mean", "optimal")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """One sentence with known codes.

    Attributes:
        feed: text and codes of one row.
        following: the code after each position, int64 [time]; `train_speech.IGNORED` where it does not count.
    """

    feed: Feed
    following: Array


@dataclasses.dataclass(frozen=True)
class Judged:
    """The results of a graph on all sentences.

    Attributes:
        nats: mean negative log-likelihood of a code.
        hits: share of codes that are the likeliest.
        errors: errors of the attentions' results by layer.
    """

    nats: float
    hits: float
    errors: tuple[float, ...]


def behind_prompts(spoken: Sequence[train_speech.Spoken]) -> list[Sentence]:
    """Return sentences, each after the shipped prompt of its voice."""
    trained = speak.original_codec()
    prompts = [speak.encode_prompt(trained, prompt.of_voice(voice)) for voice in recordings.VOICES]
    found = []
    for each in spoken:
        text, codes, following = train_speech.join([each], [prompts[each.voice]])
        found.append(Sentence({"text": text.numpy(), "codes": codes.numpy()}, following.numpy()[0]))
    return found


def captured(checkpoint: Path | None = None) -> Lowered:
    """Return the speech model over whole sequences, with its own weights or those of a checkpoint."""
    loaded = load_recipe(RECIPE)
    spec = loaded.recipe.graphs[GRAPH].model_copy(update={"derive_steps": None})
    if checkpoint is not None:
        source = spec.source.model_copy(update={"checkpoint": str(checkpoint.absolute())})
        spec = spec.model_copy(update={"source": source})
    return in_plain_form(original_of(loaded, GRAPH, spec, None, Progress(Console(quiet=True)), with_data=False).start())


def results_of(lowered: Lowered, projections: Sequence[str]) -> list[str]:
    """Return the outputs of the projections after attention, in a graph with or without merged heads."""
    values = {str(node.name): str(node.outputs[0].name) for node in lowered.model.graph}
    return [values.get(f"{name}_merged_node", values.get(name, "")) for name in projections]


def judged(
    lowered: Lowered, projections: Sequence[str], right: Sequence[Sequence[Array]], on: Sequence[Sentence]
) -> Judged:
    """Run the sentences and return the results.

    Args:
        lowered: the graph.
        projections: the nodes after the original's attentions.
        right: their outputs in the original, by sentence.
        on: the sentences to run.
    """
    nats, hits = [], []
    squares = np.zeros((2, len(projections)))
    for sentence, expected, (scores, *got) in zip(on, right, _calls(lowered, projections, on), strict=True):
        counted = sentence.following != train_speech.IGNORED
        rows, codes = scores[0, counted].astype(np.float64), sentence.following[counted]
        logs = rows - rows.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        nats.extend(-logs[np.arange(len(codes)), codes])
        hits.extend(rows.argmax(axis=1) == codes)
        squares[0] += [np.square(a.astype(np.float64) - b).sum() for a, b in zip(expected, got, strict=True)]
        squares[1] += [np.square(a.astype(np.float64)).sum() for a in expected]
    return Judged(float(np.mean(nats)), float(np.mean(hits)), tuple(np.sqrt(squares[0] / squares[1]).tolist()))


def _calls(lowered: Lowered, projections: Sequence[str], on: Sequence[Sentence]) -> list[list[Array]]:
    """Return scores and the outputs of the projections, by sentence."""
    names = results_of(lowered, projections)
    session = session_of(exposed(lowered, names).model)
    return [session.run(["scores", *names], dict(sentence.feed)) for sentence in on]


def merged(lowered: Lowered, groups: int, method: str, *, refit: bool) -> Lowered:
    """Return a copy with shared heads."""
    copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
    return make_pass("merge_kv_heads", {"groups": groups, "method": method, "refit": refit}).apply(copy).lowered


def main() -> None:
    """Merge by every method and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--recordings", type=Path, required=True, help="folder that examples.codec_tts.recordings wrote"
    )
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--measured", type=int, default=200, help="training sentences that the pass measures on")
    parser.add_argument("--count", type=int, default=128, help="test sentences that judge")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS), help="none judges no merging")
    parser.add_argument("--distilled", type=Path, help="checkpoint of a model whose heads share, trained on")
    options = parser.parse_args()
    training = behind_prompts(spoken_codes.read()[: options.measured])
    recorded = train_speech.read_spoken(speak.original_codec(), options.recordings / "test.npz")
    test = behind_prompts(recorded[: options.count])
    original = with_streams(captured(), *([each.feed] for each in training))
    projections = projections_of(original)
    right = [values for _, *values in _calls(original, projections, test)]
    judge = functools.partial(judged, projections=projections, right=right, on=test)
    rows: dict[str, Judged] = {"original": judge(original)}
    for method, refit in itertools.product(options.methods, (False, True)):
        name = f"{method}, projection behind fitted" if refit else method
        rows[name] = judge(merged(original, options.groups, method, refit=refit))
    if options.distilled is not None:
        rows["optimal, distilled"] = judge(captured(options.distilled))
    Console(width=150).print(_table(options.groups, rows))


def projections_of(lowered: Lowered) -> list[str]:
    """Return the nodes after the attentions."""
    return [str(each.output.name) for each in find_attentions(lowered.model).attentions]


def _table(groups: int, rows: Mapping[str, Judged]) -> Table:
    table = Table(title=f"heads of the trained voice that share keys and values, {groups} groups")
    for column in ("heads", "error of the results", "by layer", "nats per code", "likeliest is right"):
        table.add_column(column)
    for name, each in rows.items():
        layers = ", ".join(f"{error:.3f}" for error in each.errors)
        table.add_row(name, f"{np.mean(each.errors):.3f}", layers, f"{each.nats:.3f}", f"{each.hits:.1%}")
    return table


if __name__ == "__main__":
    command.run(main)
