"""Trains the codec on recordings within a given time, and writes `codec.safetensors`.

    python -m examples.codec_tts.recordings --output FOLDER
    python -m examples.codec_tts.train_codec --recordings FOLDER --budget-minutes 40

A run that was stopped goes on with the same command: its state lies beside the checkpoint. The learning rate follows
the clock. LossParts are spectral (distances of log-mel and of magnitudes at three resolutions) and the distance of the
pitch; there is no adversary. The pulses are driven by the true pitch while the gains are learned.
"""

import argparse
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples import command
from examples.codec_tts import checkpoint, codec, generation, recordings, training_run

CROP_FRAMES = 50
"""Code frames of one training example: 1 s."""

RESOLUTIONS = (256, 512, 1024)
FLOOR = 0.02
"""Added to magnitudes before the logarithm: what is quieter does not count."""

BOOKS_SHARE = (0.4, 0.15, 0.1, 0.35)
"""How often an example is decoded from its first 1, 2, 3 or 4 codebooks: the first alone must speak."""

DECAY = 0.98
"""Of the running means that the codebooks follow."""

LEAST_USE = 0.05
"""Entries whose running count falls below this are replaced by random latents of the batch."""


class LearningCodec(nn.Module):
    """The codec with the parts that only training needs: running means of its codebooks, and the losses."""

    counts: Tensor
    sums: Tensor
    mel: Tensor

    def __init__(self, config: codec.Config) -> None:
        super().__init__()
        self.codec = codec.Codec(config)
        self.register_buffer("counts", torch.zeros(config.codebooks, config.entries))
        self.register_buffer("sums", torch.zeros(config.codebooks, config.entries, config.latent))
        self.register_buffer("mel", codec.mel_matrix(codec.MEL_BINS, RESOLUTIONS[-1]), persistent=False)

    def quantise(self, latents: Tensor, books: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Quantise latents, update the codebooks, and pass gradients straight through.

        Args:
            latents: [batch, time, latent].
            books: int64 [batch], number of codebooks that each row is decoded from.
            generator: for the replacement of unused entries.

        Returns:
            The decoder's input [batch, time, latent], and the distance of the latents to it.
        """
        residual, kept = latents.detach(), torch.zeros_like(latents)
        for book in range(len(self.codec.quantiser.tables)):
            codes = self.codec.quantiser.nearest(residual, book)
            chosen = functional.embedding(codes, self.codec.quantiser.tables[book])
            if self.training:
                self.follow(residual.flatten(0, 1), codes.flatten(), book, generator)
            kept = kept + chosen * (books > book)[:, None, None]
            residual = residual - chosen
        return latents + (kept - latents).detach(), functional.mse_loss(latents, kept)

    def follow(self, residual: Tensor, codes: Tensor, book: int, generator: torch.Generator) -> None:
        """Move the entries of one codebook towards the residuals assigned to them: residual [n, latent], codes [n]."""
        table, counts, sums = self.codec.quantiser.tables[book], self.counts[book], self.sums[book]
        chosen = functional.one_hot(codes, len(table)).to(residual.dtype)
        counts.mul_(DECAY).add_(chosen.sum(dim=0), alpha=1 - DECAY)
        sums.mul_(DECAY).add_(chosen.T @ residual, alpha=1 - DECAY)
        used = counts > LEAST_USE
        fresh = residual[torch.randint(len(residual), (len(table),), generator=generator)]
        table.copy_(torch.where(used[:, None], sums / counts.clamp(min=1e-9)[:, None], fresh))
        counts.copy_(torch.where(used, counts, torch.full_like(counts, 2 * LEAST_USE)))
        sums.copy_(torch.where(used[:, None], sums, table * 2 * LEAST_USE))

    def losses(self, waveform: Tensor, octaves: Tensor, books: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the parts of the loss, each a scalar.

        Args:
            waveform: [batch, time * 320].
            octaves: true pitch, octaves above `codec.NEUTRAL_HZ`, [batch, time * 2].
            books: int64 [batch].
            generator: for noise and replaced entries.

        Returns:
            By name: "mel", "spectra", "pitch", "commitment".
        """
        quantised, distance = self.quantise(self.codec.encoder(waveform), books, generator)
        noise = torch.randn(*quantised.shape[:2], generation.CODE_SAMPLES, generator=generator)
        predicted, gains = self.codec.decoder.controls(quantised)
        heard = self.codec.decoder.sound(octaves, gains, noise)[:, codec.DELAY_SAMPLES :]
        spoken = waveform[:, : -codec.DELAY_SAMPLES]
        ours, theirs = magnitudes(heard), magnitudes(spoken)
        spectral = [
            (mine.add(FLOOR).log() - true.add(FLOOR).log()).abs().mean() + (mine - true).norm() / true.norm().add(1.0)
            for mine, true in zip(ours, theirs, strict=True)
        ]
        mel = (log_mel(ours[-1], self.mel) - log_mel(theirs[-1], self.mel)).abs().mean()
        return {
            "mel": mel,
            "spectra": torch.stack(spectral).mean(),
            "pitch": (predicted - octaves).abs().mean(),
            "commitment": distance,
        }


WEIGHTS = {"mel": 1.0, "spectra": 0.5, "pitch": 2.0, "commitment": 0.25}


def magnitudes(waveform: Tensor) -> list[Tensor]:
    """Return the magnitudes at each resolution: [batch, bins, frames]."""
    spectra = (
        torch.stft(waveform, size, size // 4, window=torch.hann_window(size), return_complex=True)
        for size in RESOLUTIONS
    )
    return [(torch.view_as_real(each).square().sum(dim=-1) + 1e-9).sqrt() for each in spectra]


def log_mel(magnitude: Tensor, mel: Tensor) -> Tensor:
    """Return natural logarithms of mel magnitudes: [batch, bins, frames] to [batch, frames, 80]."""
    return (magnitude.transpose(1, 2) @ mel + FLOOR).log()


def draw(training: list[recordings.Recording], batch: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return random crops of 1 s: waveforms [batch, 16000] and octaves [batch, 100]."""
    waveforms = np.zeros((batch, CROP_FRAMES * generation.CODE_SAMPLES), np.float32)
    octaves = np.zeros((batch, 2 * CROP_FRAMES), np.float32)
    for row in range(batch):
        drawn = training[generator.integers(len(training))]
        frames = len(drawn.samples) // generation.CODE_SAMPLES
        start = int(generator.integers(max(1, frames - CROP_FRAMES + 1)))
        cut = drawn.waveform[start * generation.CODE_SAMPLES :][: waveforms.shape[1]]
        waveforms[row, : len(cut)] = cut * generator.uniform(0.6, 1.4)
        heights = np.log2(drawn.pitch_hz[2 * start :][: octaves.shape[1]] / codec.NEUTRAL_HZ)
        octaves[row] = np.pad(heights, (0, octaves.shape[1] - len(heights)), mode="edge")
    return torch.from_numpy(waveforms), torch.from_numpy(octaves)


def validate(learning: LearningCodec, development: list[recordings.Recording]) -> dict[str, float]:
    """Return mean losses over whole development recordings, decoded from the first codebook and from all."""
    learning.eval()
    found: dict[str, float] = {}
    with torch.inference_mode():
        for books in (1, len(learning.counts)):
            rows = []
            for each in development:
                octaves = torch.from_numpy(np.log2(each.pitch_hz / codec.NEUTRAL_HZ))[None]
                generator = torch.Generator().manual_seed(0)
                losses = learning.losses(
                    torch.from_numpy(each.waveform)[None], octaves, torch.tensor([books]), generator
                )
                rows.append([losses["mel"].item(), losses["pitch"].item()])
            found[f"mel with {books}"], found[f"octaves with {books}"] = np.mean(rows, axis=0).tolist()
    learning.train()
    return found


def train(
    training: list[recordings.Recording],
    development: list[recordings.Recording],
    options: training_run.Options,
    path: Path,
) -> None:
    """Train until the budget is spent.

    Args:
        training: recordings to learn from.
        development: recordings whose losses are printed.
        options: options of the training.
        path: checkpoint to write, float32, named as `Codec.state_dict` names its tensors; the run's state lies beside
            it as `NAME.state`.
    """
    torch.manual_seed(options.seed)
    learning = LearningCodec(codec.Config()).train()

    def losses(chance: np.random.Generator) -> training_run.LossParts:
        generator = torch.Generator().manual_seed(int(chance.integers(2**62)))
        books = torch.from_numpy(1 + chance.choice(len(BOOKS_SHARE), options.batch, p=BOOKS_SHARE))
        parts = learning.losses(*draw(training, options.batch, chance), books, generator)
        return training_run.LossParts(torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum(), parts)

    def keep() -> str:
        safetensors.torch.save_file(learning.codec.state_dict(), path)
        return ", ".join(f"{name} {mean:.3f}" for name, mean in validate(learning, development).items())

    training_run.run(learning, losses, keep, options, path.with_suffix(".state"))


def main() -> None:
    """Read recordings, train, write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--budget-minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=checkpoint.CODEC_PATH)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    training = recordings.read(arguments.recordings / "training.npz")
    development = recordings.read(arguments.recordings / "development.npz")
    options = training_run.Options(budget_s=arguments.budget_minutes * 60, seed=arguments.seed)
    train(training, development, options, arguments.output)


if __name__ == "__main__":
    command.run(main)
