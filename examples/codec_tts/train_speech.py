"""Trains the speech model on the codec's first codebook within a given time, and writes `speech.safetensors`.

    python -m examples.codec_tts.train_speech --recordings FOLDER --codec codec.safetensors --budget-minutes 40

A run that was stopped goes on with the same command: its state lies beside the checkpoint. The learning rate follows
the clock. The prompt of every training sentence is half a second of another recording of the same voice, drawn anew
each time. Embeddings of codes begin as a projection of the codec's own entries, so that near codes begin near.
"""

import argparse
import dataclasses
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from examples import command
from examples.codec_tts import checkpoint, codec, generation, recordings, sentences, speech_model, training_run

IGNORED = -100
"""Target of places that count in no loss: the prompt, and what fills up short rows."""

NOISE_SHARE = 0.05
"""Share of the codes heard in training that are replaced by random ones: what is sampled is never perfect either."""

VALIDATED_BATCHES = 12

Codes = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Spoken:
    """One training sentence.

    Attributes:
        letters: from `sentences.encode`.
        codes: first codebook, int64 [time].
        voice: index into `recordings.VOICES`.
    """

    letters: list[int]
    codes: Codes
    voice: int


def encode_all(trained: codec.Codec, spoken: list[recordings.Recording]) -> list[Codes]:
    """Return all codes of every recording: int64 [time, codebooks] each."""
    with torch.inference_mode():
        return [trained.encode(torch.from_numpy(each.waveform)[None])[0].numpy() for each in spoken]


def read_spoken(trained: codec.Codec, path: Path) -> list[Spoken]:
    """Return recordings in the form that the speech model takes; those too short for a prompt are left out."""
    found = recordings.read(path)
    pairs = zip(found, encode_all(trained, found), strict=True)
    return [
        Spoken(sentences.encode(each.sentence), codes[:, 0], each.voice)
        for each, codes in pairs
        if len(codes) > generation.PROMPT_FRAMES
    ]


def join(rows: list[Spoken], prompts: list[Codes]) -> tuple[Tensor, Tensor, Tensor]:
    """Join rows with equal numbers of letters to one batch.

    Args:
        rows: the sentences.
        prompts: [`PROMPT_FRAMES`] codes of each row's voice.

    Returns:
        Text int64 [batch, letters], codes int64 [batch, time] and the code behind each place int64 [batch, time], where
        `IGNORED` counts in no loss.
    """
    text = torch.tensor([row.letters for row in rows])
    longest = max(len(row.codes) for row in rows)
    shape = (len(rows), generation.PROMPT_FRAMES + 1 + longest)
    codes, following = np.zeros(shape, np.int64), np.full(shape, IGNORED)
    for at, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        sequence = np.concatenate([prompt, [generation.BOUNDARY], row.codes, [generation.BOUNDARY]])
        codes[at, : len(sequence) - 1] = sequence[:-1]
        following[at, len(prompt) : len(sequence) - 1] = sequence[len(prompt) + 1 :]
    return text, torch.from_numpy(codes), torch.from_numpy(following)


class SentenceBatches:
    """Draws batches of sentences with equally many letters, each with a prompt of its voice.

    Args:
        spoken: what to draw from.
    """

    def __init__(self, spoken: list[Spoken]) -> None:
        self.spoken = spoken
        self.of_length: dict[int, list[Spoken]] = defaultdict(list)
        self.of_voice: dict[int, list[Spoken]] = defaultdict(list)
        for each in spoken:
            self.of_length[len(each.letters)].append(each)
            self.of_voice[each.voice].append(each)

    def draw(self, size: int, chance: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return one batch, as `join` does: the length of a random sentence, then sentences of that length."""
        alike = self.of_length[len(self.spoken[chance.integers(len(self.spoken))].letters)]
        rows = [alike[at] for at in chance.integers(len(alike), size=size)]
        return join(rows, [self.prompt(row.voice, chance) for row in rows])

    def prompt(self, voice: int, chance: np.random.Generator) -> Codes:
        """Return half a second of a random recording of a voice."""
        source = self.of_voice[voice][chance.integers(len(self.of_voice[voice]))].codes
        start = chance.integers(len(source) - generation.PROMPT_FRAMES + 1)
        return source[start : start + generation.PROMPT_FRAMES]


def nats_per_code(scores: Tensor, following: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the codes that count: scores [batch, time, 513]."""
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=IGNORED)


def disturb(codes: Tensor, chance: np.random.Generator) -> Tensor:
    """Replace a share of the codes by random ones; boundaries stay."""
    replaced = torch.from_numpy(chance.random(codes.shape) < NOISE_SHARE) & (codes != generation.BOUNDARY)
    return torch.where(replaced, torch.from_numpy(chance.integers(generation.ENTRIES, size=codes.shape)), codes)


def validate(model: speech_model.SpeechModel, development: SentenceBatches) -> tuple[float, float]:
    """Return the mean negative log-likelihood of a code and the share of likeliest codes, over development batches."""
    model.eval()
    losses, hits = [], []
    with torch.inference_mode():
        for seed in range(VALIDATED_BATCHES):
            text, codes, following = development.draw(8, np.random.default_rng(seed))
            scores, counted = model(text, codes), following != IGNORED
            losses.append(nats_per_code(scores, following).item())
            hits.append((scores.argmax(dim=-1) == following)[counted].float().mean().item())
    model.train()
    return float(np.mean(losses)), float(np.mean(hits))


def begin(trained: codec.Codec, seed: int) -> speech_model.SpeechModel:
    """Return the model before the first update."""
    torch.manual_seed(seed)
    model = speech_model.build()
    table = trained.quantiser.tables[0]
    projected = (table - table.mean(dim=0)) @ torch.randn(table.shape[1], model.codes.embedding_dim)
    with torch.no_grad():
        model.codes.weight[:-1] = 0.5 * model.codes.weight[:-1] + projected / projected.std()
    return model.train()


def train(
    training: SentenceBatches,
    development: SentenceBatches,
    trained: codec.Codec,
    options: training_run.Options,
    path: Path,
) -> None:
    """Train until the budget is spent.

    Args:
        training: sentences to learn from.
        development: sentences whose likelihood is printed.
        trained: the codec of these codes.
        options: options of the training.
        path: checkpoint to write, float32, named as `SpeechModel.state_dict` names its tensors; the run's state lies
            beside it as `NAME.state`.
    """
    model = begin(trained, options.seed)

    def losses(chance: np.random.Generator) -> training_run.LossParts:
        text, codes, following = training.draw(options.batch, chance)
        nats = nats_per_code(model(text, disturb(codes, chance)), following)
        return training_run.LossParts(nats, {"nats per code": nats})

    def keep() -> str:
        safetensors.torch.save_file(model.state_dict(), path)
        nats, hits = validate(model, development)
        return f"{nats:.3f} nats per code, {hits:.1%} hit"

    training_run.run(model, losses, keep, options, path.with_suffix(".state"))


def main() -> None:
    """Encode recordings, train, write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--codec", type=Path, default=checkpoint.CODEC_PATH)
    parser.add_argument("--budget-minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=checkpoint.SPEECH_PATH)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    trained = checkpoint.load(codec.Codec(), arguments.codec)
    training = SentenceBatches(read_spoken(trained, arguments.recordings / "training.npz"))
    development = SentenceBatches(read_spoken(trained, arguments.recordings / "development.npz"))
    options = training_run.Options(budget_s=arguments.budget_minutes * 60, seed=arguments.seed)
    train(training, development, trained, options, arguments.output)


if __name__ == "__main__":
    command.run(main)
