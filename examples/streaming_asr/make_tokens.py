"""Learns the label table `tokens.txt` from training sentences: byte-pair encoding with 256 pieces.

    python -m examples.streaming_asr.make_tokens

Needs `sentencepiece`; nothing else in this folder does, because the table alone spells every word of the vocabulary.
"""

import itertools
import tempfile
from pathlib import Path

import sentencepiece

from examples.streaming_asr import text

PIECES = 256
SENTENCES = 20000


def make_tokens(path: Path) -> None:
    """Write the label table: `<blank> 0`, then one `piece label` per line.

    Args:
        path: the file to write.
    """
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.islice(text.draw_sentences(0, "training"), SENTENCES),
            model_prefix=f"{folder}/pieces",
            model_type="bpe",
            vocab_size=PIECES + 1,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/pieces.model")
        pieces = ["<blank>", *(processor.id_to_piece(label) for label in range(1, PIECES + 1))]
    path.write_text("".join(f"{piece} {label}\n" for label, piece in enumerate(pieces)), encoding="utf-8")


if __name__ == "__main__":
    make_tokens(text.TOKENS_PATH)
