"""Times a target's variants on one graph's artefacts, in the smallest and the largest bucket.

Files of a plan are written and opened once, and kept while they are among those that were compared last.
"""

import dataclasses
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler.base.pieces import write_files
from compiler.base.records.timings import Comparison
from compiler.build.search.greedy import Candidate, Plan
from compiler.build.verify.chunk_lengths import Flush
from compiler.build.verify.speed import bucket_calls
from compiler.build.verify.stream_artefacts import StreamArtefacts
from compiler.build.verify.utterance_artefacts import UtteranceArtefacts
from compiler.graph.runners.paired_rounds import Call, Rounds, compared
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from compiler.recipe.gates import Tolerance
from compiler.targets.base import Built, Target
from compiler.targets.forms import Variant
from compiler.targets.static_graphs import prepare_static, write_prepared

OPEN = 3
"""Plans that are open at a time: what was kept so far, without and with the last that was, and what is tried."""


@dataclasses.dataclass(frozen=True)
class _Opened:
    """One plan: its artefacts, where they lie, and what runs each bucket that is measured."""

    built: Built
    folder: Path
    calls: Mapping[str, Call]


class VariantBench:
    """The variants of a target, on one graph.

    Args:
        target: offers them.
        lowered: the graph, all bucketed axes symbolic.
        buckets: sizes by axis; of each the smallest and the largest are measured.
        scratch: an empty folder.
        answers: the original's calls on data that no gate runs, to measure noise on; None where there are none, and
            what rounds is no candidate.
    """

    def __init__(
        self,
        target: Target,
        lowered: Lowered,
        buckets: Mapping[str, tuple[int, ...]],
        scratch: Path,
        answers: Callable[[], Sequence[OriginalCall]] | None = None,
    ) -> None:
        self.target, self.lowered, self.scratch, self.answers = target, lowered, scratch, answers
        ends = {axis: tuple(dict.fromkeys((sizes[0], sizes[-1]))) for axis, sizes in buckets.items()}
        self.prepared = prepare_static(target, lowered, ends, opens_rows=target.opens_rows)
        self._opened = OrderedDict[Plan, _Opened]()

    @property
    def candidates(self) -> list[Candidate]:
        """Return the variants that apply to the graph as candidates, standard ones first."""
        ordered = sorted(self._able(), key=lambda variant: not variant.is_standard)
        return [Candidate(variant.name, variant.made.lossy) for variant in ordered]

    @property
    def usual(self) -> Plan:
        """Return the names of the applicable standard variants, in the order of the target."""
        return tuple(variant.name for variant in self._able() if variant.is_standard)

    def _able(self) -> list[Variant]:
        return [variant for variant in self.target.offers if self.answers is not None or not variant.made.lossy]

    def changes(self, plan: Plan, name: str) -> bool:
        """Whether a variant rewrites the graph where it runs after those of a plan."""
        outcomes = self._open((*plan, name)).built.forms
        return any(each.variant == name and each.rewritten for each in outcomes)

    def compare(self, plan: Plan, other: Plan, seconds: float) -> Comparison:
        """Time two plans in alternation on both buckets, and return the ratios."""
        first, second = self._open(plan).calls, self._open(other).calls
        pairs = {sizes: Rounds((call, second[sizes])) for sizes, call in first.items()}
        return compared(pairs, seconds)

    def noise(self, plan: Plan) -> float:
        """Return the noise-to-signal power ratio of the noisiest output or state, measured on the smallest bucket."""
        assert self.answers is not None
        opened = self._open(plan)
        files = (opened.folder, self.lowered, opened.built.artifacts, Tolerance(max_abs=1.0), self.answers())
        artefacts = (
            UtteranceArtefacts(*files, self.target.open)
            if self.lowered.has_utterances
            else StreamArtefacts(*files, (), self.target.open, Flush())
        )
        levels = [each.sqnr_db for each in artefacts.differences(lambda done, total: None)]
        return max((10.0 ** (-level / 10.0) for level in levels if level is not None), default=0.0)

    def _open(self, plan: Plan) -> _Opened:
        if plan not in self._opened:
            if len(self._opened) == OPEN:
                _, oldest = self._opened.popitem(last=False)
                shutil.rmtree(oldest.folder)
            self._opened[plan] = self._made(plan)
        self._opened.move_to_end(plan)
        return self._opened[plan]

    def _made(self, plan: Plan) -> _Opened:
        built = write_prepared(self.target.with_plan(plan), self.prepared)
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        write_files(folder, built.files)
        ends = list(dict.fromkeys((0, len(built.artifacts) - 1)))
        measured = [built.artifacts[place] for place in ends]
        return _Opened(built, folder, bucket_calls(folder, measured, self.target.open))
