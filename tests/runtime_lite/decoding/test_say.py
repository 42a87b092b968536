"""say: packet sizes are chosen by the costs of the bundle's graphs."""

from pathlib import Path

from runtime_lite import Runtime
from runtime_lite.decoding.say import packet_sizes
from runtime_lite.scheduling.task import Key
from tests.runtime_lite.voice_bundle import HOP, RATE, VOICE, write_voice_bundle


def test_prices_are_those_of_steps_of_one_token_and_of_chunks_that_hold_the_frames(tmp_path: Path) -> None:
    asked = []

    def price(key: Key, rows: int) -> int:
        asked.append((key.graph, dict(key.sizes), rows))
        return 100 * rows

    with Runtime() as runtime:
        model = runtime.load(write_voice_bundle(tmp_path / "b"))
        sizes = packet_sizes(VOICE, model._version, price)
        assert (sizes.frame_ns, sizes.chunks, sizes.is_padded) == (HOP * 1_000_000_000 // RATE, (1, 5), True)
        assert (sizes.most_rows, sizes.step_ns(3), sizes.step_ns(9)) == (4, 300, 3 * 400)
        assert (sizes.codec_ns(1, 1), sizes.codec_ns(2, 4), sizes.codec_ns(5, 6)) == (100, 400, 800)
    step = {"letters": 6, "time": 1}
    assert asked == [
        ("step", step, 3),
        ("step", step, 4),
        ("codec", {"chunk": 1}, 1),
        ("codec", {"chunk": 5}, 4),
        ("codec", {"chunk": 5}, 4),
    ]
