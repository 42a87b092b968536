"""Word error rate."""

import jiwer


def wer(references: list[str], hypotheses: list[str]) -> float:
    """Return the word error rate over all pairs: (substitutions + deletions + insertions) / reference words.

    Args:
        references: the spoken texts, one per recording, none empty.
        hypotheses: the recognised texts, in the same order; may be empty.

    Returns:
        The rate; 0.0 is perfect, and insertions can bring it above 1.0.

    Raises:
        ValueError: if the lists differ in length, are empty, or a reference has no words.
    """
    if len(references) != len(hypotheses):
        raise ValueError(
            f"wer: expected one hypothesis per reference, got {len(references)} references and {len(hypotheses)} "
            "hypotheses; give an empty text for a recording without a result"
        )
    if not references:
        raise ValueError("wer: expected at least one reference, got none; check that the test set was found")
    empty = [index for index, reference in enumerate(references) if not reference.strip()]
    if empty:
        raise ValueError(
            f"wer: expected words in every reference, got an empty text at index {empty[0]}; leave that recording out"
        )
    return float(jiwer.wer(references, hypotheses))
