"""Steps of several streams in one run of a bare session, for servers that use nothing of the runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped, unused-ignore]

Feeds = Mapping[str, np.ndarray]


class BareSteps:
    """A session on one thread.

    Args:
        file: an ONNX file whose rows are open.
        states: names of state outputs by input.
    """

    def __init__(self, file: Path, states: Mapping[str, str]) -> None:
        """Open the file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._states = states

    def run(self, rows: Sequence[Feeds]) -> list[dict[str, np.ndarray]]:
        """Run every input of some streams, one row each; return the next states of each."""
        given = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        answers = dict(zip(self._outputs, self._session.run(self._outputs, given), strict=True))
        return [
            {taken: answers[output][at : at + 1] for taken, output in self._states.items()} for at in range(len(rows))
        ]
