"""Applications of Ray Serve to compare with: states by session, and our replicas without a gateway.

Runs in the environment of Ray; `build` is what its documentation leads to: the router sends a session to the
replica that it had before, and a replica that does not know a session starts one.
"""

from pathlib import Path
from typing import Any

from runtime_lite import Runtime, Stream
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.ray_replica import RayOptions, StreamsReplica

ROUTER = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"


class Naive:
    """A replica with the states of the sessions that have come to it."""

    def __init__(self, bundle: str) -> None:
        """Open the bundle."""
        self._model = Runtime(max_streams=1000).load(bundle)
        self._streams: dict[str, Stream] = {}

    async def push(self, session: str, chunk: Array) -> Array:
        """Run the next chunk of a session; an unknown one is new."""
        stream = self._streams.get(session)
        if stream is None:
            stream = self._streams[session] = self._model.open_stream()
        return (await stream.submit({"x": chunk}))["y"]


def build(arguments: dict[str, str]) -> Any:
    """Return the application of the sessions, as a configuration names it."""
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    deployed = serve.deployment(
        Naive,
        name="Naive",
        max_ongoing_requests=256,
        ray_actor_options={"num_cpus": 0.2},
        health_check_period_s=2.0,
        health_check_timeout_s=3.0,
        graceful_shutdown_timeout_s=5.0,
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
    )
    return deployed.bind(arguments["bundle"])


def scale(serve: Any, name: str, bundle: Path, replicas: int) -> None:
    """Deploy the sessions with a number of replicas, as a changed configuration does: replicas that stay go on."""
    from ray.serve.schema import ServeDeploySchema

    serve.start()
    config = {
        "name": name,
        "route_prefix": None,
        "import_path": f"{__name__}:build",
        "args": {"bundle": str(bundle)},
        "deployments": [{"name": "Naive", "num_replicas": replicas}],
    }
    client = serve.context._get_global_client()
    client.deploy_apps(ServeDeploySchema.model_validate({"applications": [config]}), _blocking=True)


def unpinned(serve: Any, bundle: Path, options: RayOptions) -> Any:
    """Return our replicas behind the router that Ray takes by itself."""

    class Unpinned(StreamsReplica):
        def __init__(self, bundle: str, options: RayOptions) -> None:
            super().__init__(bundle, options, "")

    deployed = serve.deployment(Unpinned, name="Unpinned", num_replicas=2, ray_actor_options={"num_cpus": 0.2})
    return deployed.bind(str(bundle), options)
