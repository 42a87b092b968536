"""Writes the folder of a Ray Serve application, which pins the streams of one bundle to replicas.

    DIR/app.py           the application, `app:app`, and its options
    DIR/config.yaml      its name and route, for `serve run` and `serve deploy`
    DIR/README.md        how to start, call, scale and change it
    DIR/runtime_lite/    this very runtime
    DIR/bundle/          the bundle, checked by every replica

Every machine of the cluster needs the folder at the same path, and an environment with Ray, numpy and a backend.

Source: Ray Serve 2.60; a replica that Ray stops runs `__del__` before its process ends, within
`graceful_shutdown_timeout_s`.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from runtime_lite.errors import BadInput, show
from runtime_lite.format.reader import read_bundle
from runtime_lite.hosting.named_streams import MovedStream
from runtime_lite.hosting.ray_gateway import Gateway
from runtime_lite.hosting.ray_http import answer
from runtime_lite.hosting.ray_replica import RayOptions, StreamsReplica
from runtime_lite.runtime import Runtime

RUNTIME = Path(__file__).parents[1]

ROUTER, SCALE = "runtime_lite.hosting.ray_replica:PinnedRouter", "runtime_lite.hosting.ray_replica:scale"

LEAVE_S = 60.0
"""Seconds that a replica which Ray stops has to hand over its streams."""

LOADS_S = 1.0
"""Seconds between two reports of how many streams a replica has."""

CALLS = 4096
"""Calls of one replica or gateway that Ray lets in at a time; what is too much is refused by the runtime, by name."""

APP = '''"""The runtime beside this file serves the bundle beside it, as an application of Ray Serve."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from runtime_lite.hosting.ray_application import application  # noqa: E402
from runtime_lite.hosting.ray_replica import RayOptions  # noqa: E402

OPTIONS = {options}

app = application(HERE / "bundle", OPTIONS)
'''

CONFIG = """# serve run config.yaml, or serve deploy config.yaml on a cluster that runs
applications:
- name: {name}
  route_prefix: /
  import_path: app:app
  runtime_env: {{env_vars: {{PYTHONPATH: "{folder}"}}}}
"""

README = """# {name} on Ray Serve

Streams of the bundle `{name}`. A chunk is answered from the state that the chunk before it left, or refused with the
number of the last chunk that counted. Every machine needs this folder at this path, and an environment with Ray
(`pip install "ray[serve]==2.60.0"`), numpy and a backend of the bundle (`onnxruntime`).

    serve run config.yaml              # starts Ray if need be, and the application; Ctrl-C ends both
    serve deploy config.yaml           # to a cluster that runs

From Python, in a process of the cluster:

    gateway = serve.get_deployment_handle("Gateway", "{name}")
    stream, generation, number = gateway.open.remote().result()
    outputs = gateway.push.remote(stream, generation, 0, {{"name of input": array}}).result()
    gateway.close.remote(stream, generation).result()

Over HTTP, where a chunk is an `.npz` file in both directions, as `runtime_lite/hosting/ray_http.py` describes:

    curl -X POST http://127.0.0.1:8000/streams
    curl --data-binary @chunk.npz http://127.0.0.1:8000/streams/STREAM/1/0 -o outputs.npz
    curl -X DELETE http://127.0.0.1:8000/streams/STREAM/1

- Options are in app.py. The number of replicas follows from the places that streams take, never from requests in
  flight.
- A replica that leaves hands its streams over; they go on elsewhere, and their clients notice nothing.
- A replica that is lost takes its streams along: they end with `StreamLost` and the last chunk that counted. With
  `snapshot_every=N` they go on from their newest snapshots, and the chunks behind them run again.
- A state belongs to the weights that made it: serve another bundle as an application of another name, and let the old
  one end. Where it is replaced, its streams end with `StreamLost`.
- One gateway has all streams of an application; several applications stand beside each other.
"""


def application(bundle: str | os.PathLike[str], options: RayOptions) -> Any:
    """Return the application for `serve.run`.

    Args:
        bundle: bundle directory or `.tar` file, at the same path on every machine.
        options: its options.
    """
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
    from ray.serve.exceptions import RayServeException

    environment = {"env_vars": {"PYTHONPATH": str(RUNTIME.parent)}}

    class Streams(StreamsReplica):
        """A replica that hands its streams over when Ray stops it."""

        def __init__(self, bundle: str, options: RayOptions) -> None:
            context = serve.get_replica_context()
            self._application = context.app_name
            super().__init__(bundle, options, context.replica_id.unique_id)

        async def record_routing_stats(self) -> dict[str, float]:
            return self.loads()

        async def record_autoscaling_stats(self) -> dict[str, float]:
            return self.loads()

        async def __del__(self) -> None:
            gateway = serve.get_deployment_handle("Gateway", self._application)

            async def hand_over(moved: MovedStream) -> None:
                await gateway.hand_over.remote(moved)

            await self.move_all(hand_over)

    class Ingress(Gateway):
        """A gateway that speaks HTTP."""

        def __init__(self, replicas: Any, options: RayOptions) -> None:
            super().__init__(replicas, options, (RayError, RayServeException))

            self._application = serve.get_replica_context().app_name

        async def __del__(self) -> None:
            gateway = serve.get_deployment_handle("Gateway", self._application)
            for moved in self.homeless():
                await gateway.hand_over.remote(moved)

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import Response

            reply = await answer(self, request)
            return Response(reply.content, reply.status, media_type=reply.kind)

    streams = serve.deployment(
        Streams,
        name="Streams",
        max_ongoing_requests=CALLS,
        ray_actor_options={"num_cpus": options.cpus, "runtime_env": environment},
        graceful_shutdown_timeout_s=LEAVE_S,
        graceful_shutdown_wait_loop_s=0.1,
        health_check_period_s=2.0,
        health_check_timeout_s=options.answer_s,
        request_router_config=RequestRouterConfig(request_router_class=ROUTER, request_routing_stats_period_s=LOADS_S),
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas,
            initial_replicas=options.min_replicas,
            max_replicas=options.max_replicas,
            upscale_delay_s=LOADS_S,
            downscale_delay_s=options.leave_after_s,
            metrics_interval_s=LOADS_S,
            look_back_period_s=2 * LOADS_S,
            policy=AutoscalingPolicy(policy_function=SCALE),
        ),
    )
    gateway = serve.deployment(
        Ingress,
        name="Gateway",
        num_replicas=1,
        max_ongoing_requests=CALLS,
        graceful_shutdown_timeout_s=LEAVE_S,
        graceful_shutdown_wait_loop_s=0.1,
        ray_actor_options={"num_cpus": 0, "runtime_env": environment},
    )
    # its own options alone: a gateway that Ray has no reason to replace keeps its streams when replicas are replaced
    own = RayOptions(idle_s=options.idle_s, snapshot_every=options.snapshot_every, answer_s=options.answer_s)
    return gateway.bind(streams.bind(os.fspath(bundle), options), own)


def write_application(path: str | os.PathLike[str], folder: Path, options: RayOptions) -> Path:
    """Write the folder of an application.

    Args:
        path: bundle directory or `.tar` file.
        folder: the folder, which must not exist.
        options: options of the application.

    Returns:
        The folder.

    Raises:
        BadInput: the folder exists, an option is wrong, or the graph has no states.
        BundleRefused: the bundle cannot be trusted or read.
    """
    _check(options)
    if folder.exists():
        raise BadInput(f"{folder}: expected a folder that does not exist, got one that does; choose another")
    with Runtime(options.threads, workers=options.workers, max_streams=options.max_streams) as runtime:
        model = runtime.load(path)
        model.open_stream(options.graph, idle_s=options.idle_s).close()  # refuses what has no states
        name = model.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with read_bundle(path) as bundle, tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as scratch:
        written = Path(scratch, folder.name)
        written.mkdir()
        for file, text in (("app.py", APP), ("config.yaml", CONFIG), ("README.md", README)):
            content = text.format(name=name, folder=folder.resolve(), options=repr(options))
            (written / file).write_text(content, encoding="utf-8")
        shutil.copytree(RUNTIME, written / "runtime_lite", ignore=shutil.ignore_patterns("__pycache__"))
        bundle.copy_to(written / "bundle")
        return written.rename(folder)


def _check(options: RayOptions) -> None:
    least = {"snapshot_every": 0, "min_replicas": 1, "max_replicas": options.min_replicas}
    for name, low in least.items():
        value = getattr(options, name)
        if type(value) is not int or not low <= value <= 10_000:
            raise BadInput(f"write_application: expected {name} from {low} to 10000, got {show(value)}; correct it")
    for name in ("answer_s", "leave_after_s", "cpus"):
        value = getattr(options, name)
        if type(value) not in (int, float) or not 0 <= value <= 3600:
            raise BadInput(f"write_application: expected {name} from 0 to 3600, got {show(value)}; correct it")
