"""Rules MV: operators that only move entries."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = Transpose<perm = [0, 2, 1]>(j)", "MV1", axis=2),
    Accepts("out = Transpose(j)", "MV1", axis=1),
    Accepts("out = Reshape(j, split)", "MV2"),
    Accepts("out = Unsqueeze(j, zero)", "MV3", axis=2),
    Accepts("out = Unsqueeze(j, third)", "MV3", axis=2),
    Accepts("out = Unsqueeze(j, three)", "MV3", axis=1),
    Accepts("u = Unsqueeze(j, zero)  out = Squeeze(u, zero)", "MV4"),
    Accepts("out, rest = Split<axis = -1, num_outputs = 2>(j)", "MV5"),
    Accepts("out = Gather<axis = 2>(j, ids)", "MV6"),
]

REFUSED = [
    ("out = Reshape(j, flat)", "merges or splits"),
    ("out = Squeeze(j)", "unknown axes"),
    ("out = Squeeze(j, none)", "unknown axes"),
    ("out = Unsqueeze(j, length)", "length of the padded axis"),
    ("out = Squeeze(j, one)", "Squeeze of the padded axis"),
    ("out, rest = Split<axis = 1, num_outputs = 2>(j)", "Split of the padded axis"),
    ("out = Gather<axis = 1>(j, ids)", "Gather along the padded axis"),
    ("out = Gather<axis = 0>(tall, whole)", "padded indices"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
