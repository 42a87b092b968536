"""Metrics count what observers are told, in the format that Prometheus reads."""

import gc
import shutil
import socket
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime_lite import BadInput, EngineAbsent, Model, Runtime
from runtime_lite.serving.events import Observer
from runtime_lite.serving.metrics import Metrics
from tests.runtime_lite.serving.happenings import MS, execution, request
from tests.runtime_lite.serving.served import feed


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, `name{a=b}`, those of histograms by their bounds left out."""
    return {
        f"{sample.name}{{{','.join(f'{key}={value}' for key, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def labels(text: str) -> list[dict[str, str]]:
    """Those of every sample."""
    return [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples]


def tell(observer: Observer) -> None:
    """Two requests of one run, one in time and one late; one dropped; one that failed."""
    for number in (1, 2, 3, 4):
        observer.submitted(request(number, at=number, soft=160 if number == 1 else 20))
    observer.ended(request(3, at=3), "dropped", "deadline", 10 * MS)
    observer.executed(execution(1, (1, 2), decided=11, began=12, ended=22))
    observer.ended(request(1, at=1), "done", "", 23 * MS)
    observer.ended(request(2, at=2, soft=20), "done", "", 24 * MS)
    observer.executed(execution(2, (4,), decided=25, began=26, ended=27, fault="it broke"))
    observer.ended(request(4, at=4), "failed", "executor", 28 * MS)


def test_every_request_is_counted_in_and_out() -> None:
    metrics = Metrics()
    metrics.submitted(request(9, service="utterance"))
    tell(metrics)
    found = values(metrics.page().decode())
    ended = {key: value for key, value in found.items() if key.startswith("slipway_requests_ended_total")}
    assert ended == {
        "slipway_requests_ended_total{outcome=done,reason=,service=chunk}": 2,
        "slipway_requests_ended_total{outcome=dropped,reason=deadline,service=chunk}": 1,
        "slipway_requests_ended_total{outcome=failed,reason=executor,service=chunk}": 1,
    }
    assert found["slipway_requests_submitted_total{service=chunk}"] == 4
    assert found["slipway_requests_live{service=chunk}"] == 0
    assert found["slipway_requests_live{service=utterance}"] == 1
    assert found["slipway_requests_late_total{service=chunk}"] == 1
    assert found["slipway_frames_total{service=chunk}"] == pytest.approx(1.28)


def test_times_rows_padding_and_lanes_are_those_of_the_runs() -> None:
    metrics = Metrics()
    tell(metrics)
    found = values(metrics.page().decode())
    graph = "graph=encoder,model=asr"
    assert found["slipway_request_latency_seconds_sum{service=chunk}"] == pytest.approx(0.022 + 0.022)
    assert found["slipway_queue_seconds_count{service=chunk}"] == 3
    assert found["slipway_queue_seconds_sum{service=chunk}"] == pytest.approx(0.010 + 0.009 + 0.021)
    assert found[f"slipway_run_seconds_sum{{bucket=batch=4,{graph}}}"] == pytest.approx(0.010)
    assert found[f"slipway_run_rows_sum{{{graph}}}"] == 2
    assert found[f"slipway_places_total{{{graph.replace('graph=encoder', 'graph=encoder,kind=padding')}}}"] == 20
    assert found[f"slipway_places_total{{{graph.replace('graph=encoder', 'graph=encoder,kind=used')}}}"] == 20
    assert found[f"slipway_run_cost_ratio_sum{{{graph}}}"] == pytest.approx(1.0)
    assert found[f"slipway_runs_total{{{graph},outcome=failed}}"] == 1
    assert found["slipway_lane_busy_seconds_total{lane=0}"] == pytest.approx(0.011 + 0.002)


def test_streams_and_models_are_followed() -> None:
    metrics = Metrics()
    for change in ("opened", "paused", "resumed", "expired", "opened", "restored", "closed"):
        metrics.stream_changed("asr", 1, change, "", 0)
    metrics.model_changed("asr", "swapped", 0)
    found = values(metrics.page().decode())
    assert found["slipway_streams{model=asr}"] == 1
    assert found["slipway_stream_changes_total{change=expired,model=asr}"] == 1
    assert found["slipway_model_changes_total{change=swapped,model=asr}"] == 1


def test_the_page_is_served_and_the_port_given_back() -> None:
    metrics = Metrics()
    tell(metrics)
    with metrics.serve(0) as address:
        with urllib.request.urlopen(address) as answer:
            assert values(answer.read().decode()) == values(metrics.page().decode())
        port = int(address.split(":")[2].split("/")[0])
        with pytest.raises(BadInput, match=r"a free port on 127\.0\.0\.1"), metrics.serve(port):
            pass
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_without_the_library_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(EngineAbsent, match="pip install prometheus-client"):
        Metrics()


def swap(runtime: Runtime, model: Model, bundle: Path) -> Model:
    runtime.swap(model, bundle)
    return model


def reload(runtime: Runtime, model: Model, bundle: Path) -> Model:
    model.close()
    return runtime.load(bundle)


@pytest.mark.parametrize(("change", "names"), [(swap, {"tiny", "tiny~2"}), (reload, {"tiny", "other"})])
def test_metrics_and_memory_do_not_grow_with_changes_of_version(
    change: Callable[[Runtime, Model, Path], Model], names: set[str], bundle: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(bundle, tmp_path / "other")
    manifest = (other / "manifest.json").read_text()
    (other / "manifest.json").write_text(manifest.replace('"name": "tiny"', '"name": "other"'))
    metrics = Metrics()
    objects = []
    with Runtime(observers=[metrics]) as runtime:
        model = runtime.load(bundle)
        for count in range(1, 41):
            model = change(runtime, model, other if count % 2 else bundle)
            model.run(feed(1), "plain")
            model.open_stream("streaming").close()
            if count in (10, 40):
                gc.collect()
                objects.append(len(gc.get_objects()))
    named = {sample["model"] for sample in labels(metrics.page().decode()) if "model" in sample}
    assert named == names
    assert objects[1] - objects[0] < 150, "five objects per change: of a bucket that had not run, none of a version"
