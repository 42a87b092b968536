"""packets: how many frames a packet has, by lead, number of voices and prices."""

import dataclasses

import pytest

from runtime_lite.decoding.packets import GUARD_NS, PacketSizes

MS = 1_000_000


def sizes(rows: int = 8, chunks: tuple[int, ...] = (1, 25), is_padded: bool = True) -> PacketSizes:
    """Frames of 20 ms; a step of B voices takes 1.6 + 0.5 B ms, a chunk of n frames 1 + 0.15 n ms."""
    return PacketSizes(
        20 * MS,
        chunks,
        is_padded,
        rows,
        lambda voices: int((1.6 + 0.5 * voices) * MS),
        lambda frames, voices: int((1 + 0.15 * frames) * MS),
    )


def test_a_first_packet_is_small_while_few_speak_and_lasts_until_the_next_when_many_do() -> None:
    assert [sizes(rows=20).first(voices) for voices in (1, 5, 20)] == [1, 1, 1]
    dear = dataclasses.replace(sizes(rows=20), codec_ns=lambda frames, voices: voices * MS)
    assert [dear.first(voices) for voices in (1, 5, 6, 20)] == [1, 1, 2, 6]
    for voices in (1, 5, 6, 20):
        assert dear.first(voices) * dear.frame_ns >= dear.codec_ns(1, voices)


@pytest.mark.parametrize("voices", [1, 8, 16])
def test_a_packet_spends_at_most_half_of_the_lead(voices: int) -> None:
    chosen = [sizes().following(lead * MS, voices) for lead in range(0, 2000, 10)]
    assert chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == (1, 25)
    rows = max(voices, 8)
    frame = sizes().step_ns(rows) + sizes().codec_ns(25, rows) / 25
    for lead, frames in zip(range(0, 2000, 10), chosen, strict=True):
        if frames > 1:
            assert frames * frame + sizes().codec_ns(25, rows) + GUARD_NS <= lead * MS / 2


def test_packets_grow_where_small_ones_would_take_more_time_than_they_sound() -> None:
    dear = dataclasses.replace(sizes(), codec_ns=lambda frames, voices: 5 * voices * MS)
    assert [dear.following(0, voices) for voices in (1, 4, 8)] == [1, 2, 5]
    slow = dataclasses.replace(sizes(), step_ns=lambda voices: 30 * MS)
    assert slow.first(1) == slow.following(10**12, 1) == 25


def test_a_chunk_has_a_size_that_the_codec_takes() -> None:
    assert [sizes().chunk(frames) for frames in (1, 3, 25, 40)] == [1, 3, 25, 25]
    exact = sizes(chunks=(1, 5, 25), is_padded=False)
    assert [exact.chunk(frames) for frames in (1, 4, 5, 24, 30)] == [1, 1, 5, 5, 25]


def test_prices_that_are_not_known_give_packets_all_the_same() -> None:
    free = dataclasses.replace(sizes(), step_ns=lambda voices: 0, codec_ns=lambda frames, voices: 0)
    assert (free.first(1), free.following(0, 1), free.following(10 * MS, 1)) == (1, 1, 25)
