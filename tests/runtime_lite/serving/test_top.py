"""The live view shows what happened between two readings of a page."""

import math
import socket

import pytest

from runtime_lite import BadInput
from runtime_lite.serving.health import Health
from runtime_lite.serving.metrics import Metrics
from runtime_lite.serving.top import percentile, read_page, view, watch
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.serving.happenings import MS, execution, request
from tests.runtime_lite.serving.served import in_thread
from tests.runtime_lite.serving.test_metrics import tell


def words(text: str, first: str) -> list[str]:
    """The words of the line that begins with one."""
    return next(line.split() for line in text.splitlines() if line.strip().startswith(first))


def test_rates_and_shares_are_those_of_the_interval() -> None:
    metrics = Metrics()
    for number in range(101, 201):
        metrics.submitted(request(number))
        metrics.ended(request(number), "done", "", 25_000 * MS)
    with metrics.serve(0) as address:
        before = read_page(address, lambda: 100.0)
        tell(metrics)
        metrics.submitted(request(9, service="utterance"))
        metrics.stream_changed("asr", 1, "opened", "", 0)
        text = view(before, read_page(address, lambda: 102.0))
    assert text.splitlines()[0] == "1 streams, lanes busy 0: 1%, over 2.0 s"
    # live, in/s, done/s, frames/s, p50, p99, queue p99, late: of the two that are done, between 20 and 40 ms
    assert words(text, "chunk") == ["chunk", "0", "2.0", "1.0", "0.6", "30.0", "39.8", "39.4", "50.0%"]
    assert words(text, "utterance")[:5] == ["utterance", "1", "0.5", "0.0", "0.0"]
    assert words(text, "asr.encoder")[:4] == ["asr.encoder", "1.0", "2.0", "50.0%"]
    assert "chunk  dropped  deadline  0.5    1" in text
    assert "chunk  failed   executor  0.5    1" in text


def test_a_server_that_started_anew_counts_from_zero() -> None:
    first, second = Metrics(), Metrics()
    for _ in range(5):
        tell(first)
    tell(second)
    with first.serve(0) as address, second.serve(0) as later:
        text = view(read_page(address, lambda: 0.0), read_page(later, lambda: 1.0))
    assert words(text, "chunk")[2:4] == ["4.0", "2.0"]


@pytest.mark.parametrize(("healthy", "words"), [(True, ""), (False, "NOT HEALTHY, ")])
def test_how_the_runtime_is_stands_at_the_top(healthy: bool, words: str) -> None:
    metrics = Metrics()
    metrics.follow(lambda: Health(healthy, "", 5, 2, 0, False, ""))
    with metrics.serve(0) as address:
        (text,) = watch(address, every_s=0.0, pages=1)
    assert text.startswith(f"0 streams, 5 queued, 2 running, {words}lanes busy never")


def test_before_the_first_request_there_is_a_sentence() -> None:
    with Metrics().serve(0) as address:
        (text,) = watch(address, every_s=0.0, pages=1)
    assert "0 streams, lanes busy never" in text
    assert "no requests yet" in text


def test_what_serves_no_metrics_is_refused() -> None:
    with Metrics().serve(0) as address:
        pass
    for place in (address, "nonsense", "file:///etc/hostname", "http://a b/", "http://[::1"):
        with pytest.raises(BadInput, match="expected metrics at"):
            read_page(place)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.0 200 OK\r\n\r\n# TYPE node_load1 gauge\nnode_load1 0.5\n",
        b"HTTP/1.0 200 OK\r\n\r\n<html>{",
        b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe",
    ],
)
def test_another_server_is_refused_by_what_it_says(answer: bytes) -> None:
    def serve() -> None:
        with server.accept()[0] as line:
            line.recv(4096)
            line.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = in_thread(serve)
        with pytest.raises(BadInput, match=r"expected metrics at .*, got "):
            read_page(f"http://127.0.0.1:{server.getsockname()[1]}/metrics")
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ((0, 0, 0), 0.5, None),
        ((4, 4, 4), 0.5, 0.5),
        ((0, 4, 4), 0.5, 1.5),
        ((2, 4, 4), 1.0, 2.0),
        ((2, 2, 4), 0.99, math.inf),
        ((0, 1, 1), 0.0, 1.0),
    ],
)
def test_percentiles_are_linear_inside_of_a_bucket(
    counts: tuple[float, ...], share: float, wanted: float | None
) -> None:
    assert percentile((1.0, 2.0, math.inf), counts, share) == wanted


def test_a_page_shows_the_failure_of_a_run() -> None:
    metrics = Metrics()
    with metrics.serve(0) as address:
        before = read_page(address, lambda: 0.0)
        metrics.executed(execution(1, (), 0, 0, 5, fault="it broke"))
        text = view(before, read_page(address, lambda: 1.0))
    assert words(text, "asr.encoder") == ["asr.encoder", "1.0"]


def test_what_a_page_says_moves_no_cursor() -> None:
    """A label of another server's may hold anything."""
    answer = b'HTTP/1.0 200 OK\r\n\r\n# TYPE slipway_runs counter\nslipway_runs_total{model="\x1b[2Jm",graph="g"} 3\n'

    def serve() -> None:
        for _ in range(2):
            with server.accept()[0] as line:
                line.recv(4096)
                line.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = in_thread(serve)
        (text,) = watch(f"http://127.0.0.1:{server.getsockname()[1]}/metrics", every_s=0.0, pages=1)
        thread.join(PATIENCE_S)
    assert "'\\x1b[2Jm'.g" in text
    assert text.replace("\n", "").isprintable()
