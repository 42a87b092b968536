"""playback: lead, gaps and what was taken, of packets whose times are given."""

import pytest

from runtime_lite.decoding.playback import Playback

MS = 1_000_000
RATE = 1000
"""One sample is a millisecond."""


def test_lead_is_what_was_made_and_not_yet_played() -> None:
    playback = Playback(RATE, 0)
    assert playback.lead_ns(7 * MS) == 0
    playback.add(100, 10 * MS)
    assert playback.lead_ns(50 * MS) == 100 * MS  # nobody plays yet
    assert playback.lead_ns(50 * MS, more=20) == 120 * MS
    playback.take(50 * MS)
    assert playback.lead_ns(50 * MS) == 100 * MS
    assert playback.lead_ns(110 * MS) == 40 * MS
    playback.add(30, 110 * MS)
    assert playback.lead_ns(110 * MS) == 70 * MS
    assert playback.lead_ns(500 * MS) == 30 * MS  # all that was taken is played, the rest is not


def test_a_gap_is_the_time_without_sound_in_front_of_a_packet() -> None:
    playback = Playback(RATE, 0)
    playback.add(100, 10 * MS)
    playback.take(20 * MS)  # plays until 120
    playback.add(50, 150 * MS)
    playback.take(160 * MS)  # 40 ms late, plays until 210
    playback.add(50, 200 * MS)
    playback.take(300 * MS)  # was there in time: the reader's own pause, plays until 350
    playback.add(10, 351 * MS)
    playback.take(352 * MS)
    report = playback.report()
    assert report.gaps_ms == (40.0, 2.0)
    assert [report.gaps_over(ms) for ms in (1, 2, 39, 40)] == [2, 1, 1, 0]
    assert report.first_sound_ms == 20.0
    assert report.lead_ms == 10.0
    assert report.real_time_factor == pytest.approx(351 / 210)


def test_a_packet_that_is_put_back_was_never_taken() -> None:
    playback = Playback(RATE, 0)
    for at in (0, 200):
        playback.add(100, at * MS)
        playback.take(at * MS)
        before = playback.report()
        playback.put_back()
        assert playback.samples == playback.packets * 100
        playback.take(at * MS)
        assert playback.report() == before
    assert (playback.packets, playback.samples, playback.report().gaps_ms) == (2, 200, (100.0,))


def test_without_a_packet_there_is_nothing_to_report() -> None:
    report = Playback(RATE, 0).report()
    assert (report.first_sound_ms, report.lead_ms, report.gaps_ms, report.real_time_factor) == (None, 0.0, (), None)
