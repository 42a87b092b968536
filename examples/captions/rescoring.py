"""The text of a whole utterance: the likeliest words of the vocabulary, by CTC and a language model of word pairs.

A prefix beam search adds the probabilities of all alignments of a text (Graves and Jaitly, 2014; Hannun et al., 2014,
arXiv:1408.2873). Only words of the vocabulary in their own spelling are followed, and every complete word costs what
the language model says about it behind the word before.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from examples.streaming_asr import text

BEAM = 16
"""Texts that are followed from frame to frame."""

LEAST_LOG = -7.0
"""Labels that are less likely than this in a frame, as a natural logarithm, are not followed."""

LANGUAGE_WEIGHT = 0.6
"""Weight of the language model's logarithm beside that of CTC: the best of 0, 0.15, 0.3, 0.6 and 1 on the
development set."""

SENTENCES = 20_000
"""Sentences of the training side that the language model counts."""

Labels: TypeAlias = tuple[int, ...]

NEVER = -math.inf


class WordPairs:
    """Probabilities of a word behind another one, with those of single words where a pair is rare (Witten-Bell).

    Args:
        sentences: words separated by single spaces.
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        self._pairs: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self._words: collections.Counter[str] = collections.Counter()
        for sentence in sentences:
            words = ["", *sentence.split()]
            self._words.update(words[1:])
            for before, word in itertools.pairwise(words):
                self._pairs[before][word] += 1
        self._all = self._words.total() + len(text.VOCABULARY)

    def log_probability(self, before: str, word: str) -> float:
        """Return the natural logarithm of the probability of `word` behind `before`, which is empty in front."""
        single = (self._words[word] + 1) / self._all
        seen = self._pairs.get(before)
        if seen is None:
            return math.log(single)
        kinds, total = len(seen), seen.total()
        return math.log((seen[word] + kinds * single) / (total + kinds))


def language_model() -> WordPairs:
    """Return the language model of the recogniser's training sentences, the same in every run."""
    return WordPairs(itertools.islice(text.draw_sentences(0, "training"), SENTENCES))


@dataclasses.dataclass(eq=False)
class _Node:
    """A place in the tree of spellings.

    Attributes:
        below: the places that one more label leads to.
        word: the word that is complete here; None within a word.
    """

    below: dict[int, "_Node"] = dataclasses.field(default_factory=dict)
    word: str | None = None


@dataclasses.dataclass(eq=False)
class _Text:
    """A text that is followed.

    Attributes:
        node: where its last word stands in the tree.
        before: the words in front of the last one.
        language: logarithm of the language model's probability of `before`, weighted.
        blank: logarithm of the probability of all alignments that end in a blank.
        label: that of those that end in its last label.
    """

    node: _Node
    before: tuple[str, ...] = ()
    language: float = 0.0
    blank: float = NEVER
    label: float = NEVER

    @property
    def ctc(self) -> float:
        """Logarithm of the probability of all alignments."""
        return _added(self.blank, self.label)


def _added(one: float, other: float) -> float:
    if one < other:
        one, other = other, one
    return one if other == NEVER else one + math.log1p(math.exp(other - one))


class Rescorer:
    """Finds the likeliest texts of utterances.

    Args:
        tokens: the label table of the recogniser.
        pairs: the language model.
        weight: its weight.
        vocabulary: the words.
    """

    def __init__(
        self,
        tokens: text.TokenTable,
        pairs: WordPairs,
        weight: float = LANGUAGE_WEIGHT,
        vocabulary: Sequence[str] = text.VOCABULARY,
    ) -> None:
        self._root = _Node()
        for word in vocabulary:
            node = self._root
            for label in tokens.encode(word):
                node = node.below.setdefault(label, _Node())
            node.word = word
        self._pairs, self._weight = pairs, weight

    def best(self, logits: npt.NDArray[np.float32], count: int = 1) -> list[str]:
        """Return the likeliest texts of an utterance, the best first.

        Args:
            logits: float32 [frames, labels].
            count: number of texts.

        Returns:
            At most `count` texts of complete words.
        """
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        beam: dict[Labels, _Text] = {(): _Text(self._root, blank=0.0)}
        for frame in logs:
            beam = self._next(beam, frame)
        complete = [state for state in beam.values() if state.node is self._root or state.node.word is not None]
        found: dict[tuple[str, ...], float] = {}
        for state in complete or beam.values():  # where all of them end within a word, that word is left out
            words = state.before if state.node.word is None else (*state.before, state.node.word)
            score = state.ctc + state.language + self._cost(state)
            found[words] = _added(found.get(words, NEVER), score)
        return [" ".join(words) for words in sorted(found, key=lambda words: found[words], reverse=True)[:count]]

    def _cost(self, state: _Text) -> float:
        """Return the weighted logarithm of the last word's probability; 0 without one."""
        word = state.node.word
        return 0.0 if word is None else self._weight * self._pairs.log_probability((state.before or ("",))[-1], word)

    def _next(self, beam: Mapping[Labels, _Text], frame: npt.NDArray[np.float32]) -> dict[Labels, _Text]:
        likely = {int(label): float(frame[label]) for label in np.flatnonzero(frame > LEAST_LOG)}
        grown: dict[Labels, _Text] = {}
        for labels, state in beam.items():
            same = grown.setdefault(labels, dataclasses.replace(state, blank=NEVER, label=NEVER))
            same.blank = _added(same.blank, state.ctc + float(frame[text.BLANK]))
            if labels and labels[-1] in likely:
                same.label = _added(same.label, state.label + likely[labels[-1]])
            for label, log in likely.items():
                for longer in self._longer(state, label):
                    ctc = state.blank if labels and labels[-1] == label else state.ctc
                    target = grown.setdefault((*labels, label), longer)
                    target.label = _added(target.label, ctc + log)
        kept = sorted(grown.items(), key=lambda item: item[1].ctc + item[1].language, reverse=True)[:BEAM]
        return {labels: state for labels, state in kept if state.ctc > NEVER}

    def _longer(self, state: _Text, label: int) -> Iterator[_Text]:
        """Yield the text with one more label, if that goes on with its last word or starts another one."""
        if (node := state.node.below.get(label)) is not None:
            yield _Text(node, state.before, state.language)
        elif state.node.word is not None and (first := self._root.below.get(label)) is not None:
            yield _Text(first, (*state.before, state.node.word), state.language + self._cost(state))
