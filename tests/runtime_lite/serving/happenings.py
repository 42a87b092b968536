"""What observers are told, short enough for a test; times are milliseconds."""

from runtime_lite.serving.events import Execution, Request

MS = 1_000_000


def request(number: int, at: int = 0, service: str = "chunk", soft: int = 160, worth: float = 0.64) -> Request:
    """A request of one row, chunk of a stream."""
    return Request(number, "asr", "encoder", service, 1, 7, 0, at * MS, (at + soft) * MS, None, worth)


def execution(
    number: int, requests: tuple[int, ...], decided: int, began: int, ended: int, fault: str | None = None
) -> Execution:
    """A run of a bucket of four rows, one place for each."""
    rows = len(requests)
    return Execution(
        number,
        0,
        "asr",
        "encoder",
        {"batch": 4},
        rows,
        rows * 10,
        40,
        requests,
        decided * MS,
        began * MS,
        ended * MS,
        10 * MS,
        fault,
        False,
    )
