"""Converts logits to text, chunk by chunk, by greedy CTC, which drops repeats and blanks."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from examples.streaming_asr import text


class GreedyDecoder:
    """The text of one stream, which grows with each chunk of logits.

    It takes the best label of every frame, and drops blanks and labels equal to that of the frame before, also across
    chunk borders. Chunks of any length give the same text.

    Args:
        tokens: the label table of the recogniser.
    """

    def __init__(self, tokens: text.TokenTable) -> None:
        self._tokens = tokens
        self._last_label = text.BLANK
        self._labels: list[int] = []

    @property
    def text(self) -> str:
        """All text so far: words separated by single spaces."""
        return self._tokens.decode(self._labels)

    def push(self, logits: npt.NDArray[np.float32]) -> str:
        """Add the logits of the next frames.

        Args:
            logits: float32 [frames, labels], or [1, frames, labels] as the model gives them.

        Returns:
            All text so far.

        Raises:
            ValueError: if the shape does not fit the label table.
        """
        frames = logits[0] if logits.ndim == 3 and logits.shape[0] == 1 else logits
        labels = len(self._tokens.pieces)
        if frames.ndim != 2 or frames.shape[1] != labels:
            raise ValueError(
                f"GreedyDecoder.push: expected logits [frames, {labels}], got {list(logits.shape)}; "
                "use the label table that belongs to the model, and one decoder per stream"
            )
        for label in frames.argmax(axis=1).tolist():
            if label not in (self._last_label, text.BLANK):
                self._labels.append(label)
            self._last_label = label
        return self.text


def decode_outputs(outputs: Sequence[Mapping[str, npt.NDArray[np.float32]]]) -> str:
    """Return the text of a whole stream, which the task gate of the recipe compares.

    Args:
        outputs: the outputs by name of every chunk; "logits" is float32 [1, frames, labels].
    """
    decoder = GreedyDecoder(text.read_tokens())
    for chunk in outputs:
        decoder.push(chunk["logits"])
    return decoder.text
