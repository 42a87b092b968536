"""Reads and writes `costs.json`, the measured run times by graph and bucket, which no hash covers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from runtime_lite.errors import BundleRefused, show
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.checked_json import JsonValue, refuse
from runtime_lite.format.manifest import COSTS_FILE, Manifest, bucket_name

MAX_COSTS_BYTES = 2**20
MEASURE = "measure again with bench --update-costs"


@dataclass(frozen=True)
class Cost:
    """Time of one run of one bucket.

    Attributes:
        threads: number of threads of the measured runs.
        p50_ms: median in ms.
        p95_ms: 95th percentile in ms.
        p99_ms: 99th percentile in ms; None if it was not measured.
    """

    threads: int
    p50_ms: float
    p95_ms: float
    p99_ms: float | None = None


Costs = Mapping[str, Mapping[str, Cost]]  # graph name -> bucket name -> cost


def json_from_costs(costs: Costs) -> bytes:
    """Return the canonical JSON of a cost table."""
    plain = {graph: {bucket: _plain(cost) for bucket, cost in table.items()} for graph, table in costs.items()}
    return canonical_json(plain)


def _plain(cost: Cost) -> dict[str, float]:
    return {name: value for name, value in asdict(cost).items() if value is not None}


def costs_from_json(text: bytes, manifest: Manifest) -> Costs:
    """Read a cost table from JSON and check it against a manifest.

    Raises:
        BundleRefused: it is malformed or names a graph or bucket that the bundle does not have.
    """
    try:
        costs = JsonValue.parse(text, COSTS_FILE).table(lambda graph: graph.table(_cost, keys=JsonValue.text))
    except BundleRefused as error:
        raise BundleRefused(f"{error}, or delete {COSTS_FILE} and {MEASURE}") from error
    for graph, table in costs.items():
        artifacts = manifest.graphs[graph].artifacts if graph in manifest.graphs else ()
        known = {bucket_name(artifact.sizes) for artifact in artifacts}
        if not known or not known.issuperset(table):
            got = f"{show(graph)} with {show(sorted(table))}"
            refuse(COSTS_FILE, "graphs and buckets of the bundle", got, f"delete {COSTS_FILE} and {MEASURE}")
    return costs


def _cost(value: JsonValue) -> Cost:
    has_p99 = isinstance(value.value, dict) and "p99_ms" in value.value
    value.keys_are([f.name for f in fields(Cost) if has_p99 or f.name != "p99_ms"])
    return Cost(
        threads=value.key("threads").integer(1, 4096),
        p50_ms=value.key("p50_ms").number(0.0, 1e9),
        p95_ms=value.key("p95_ms").number(0.0, 1e9),
        p99_ms=value.key("p99_ms").number(0.0, 1e9) if has_p99 else None,
    )
