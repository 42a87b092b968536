"""Counts how much sound of a voice was made, taken and played, so that the runtime knows when it would run out.

A player starts with the first packet that its reader takes, and plays what was taken without a pause as long as there
is some. The *lead* is the sound that was made and not yet played. A gap is a time in which the player had played all,
and the next packet had not been made; if that was made in time and taken late, the pause is the reader's own.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from runtime_lite.scheduling.clock import NS_PER_MS


class Taken(NamedTuple):
    """The part of a voice that its reader has taken.

    Attributes:
        packets: number of packets.
        samples: number of samples.
        tokens: number of tokens whose sound was taken to its end.
    """

    packets: int
    samples: int
    tokens: int


@dataclass(frozen=True)
class VoiceReport:
    """How a voice was served so far.

    Attributes:
        first_sound_ms: from the request until its reader took the first packet; None before.
        lead_ms: sound that was made and not yet played when the last packet had been made; 0.0 before the first.
        gaps_ms: length of every gap in front of a packet, in order.
        real_time_factor: time from the request until the last packet was made, by the length of the sound; None before
            the first.
    """

    first_sound_ms: float | None
    lead_ms: float
    gaps_ms: tuple[float, ...]
    real_time_factor: float | None

    def gaps_over(self, ms: float) -> int:
        """Return the number of gaps longer than some milliseconds."""
        return sum(gap > ms for gap in self.gaps_ms)


class Playback:
    """The sound of one voice: made, taken and played; times in nanoseconds.

    Args:
        rate_hz: samples per second.
        now: time of the request.

    Attributes:
        packets: number of packets that were taken.
        samples: number of samples that were taken.
        made: number of samples that were made.
    """

    def __init__(self, rate_hz: int, now: int) -> None:
        """Start without sound."""
        self._rate_hz, self._begun = rate_hz, now
        self._unread: deque[tuple[int, int]] = deque()
        self._ends: int | None = None
        self._first: int | None = None
        self._last = now
        self._last_lead = 0
        self._gaps: list[int] = []
        self._before: tuple[tuple[int, int], int | None, int] | None = None
        self.packets = self.samples = self.made = 0

    def _ns(self, samples: int) -> int:
        return samples * 1_000_000_000 // self._rate_hz

    def lead_ns(self, now: int, more: int = 0) -> int:
        """Return the length of the sound that was made and not yet played, and of some more samples."""
        playing = 0 if self._ends is None else max(self._ends - now, 0)
        return playing + self._ns(self.made - self.samples + more)

    def add(self, samples: int, now: int) -> None:
        """Record a packet that was made."""
        self._unread.append((samples, now))
        self.made += samples
        self._last, self._last_lead = now, self.lead_ns(now)

    def take(self, now: int) -> None:
        """Record that the next packet is taken."""
        packet = self._unread.popleft()
        samples, made = packet
        self._before = packet, self._ends, len(self._gaps)
        if self._ends is None:
            self._first = now
        elif made > self._ends:
            self._gaps.append(now - self._ends)
        self._ends = max(now, now if self._ends is None else self._ends) + self._ns(samples)
        self.packets += 1
        self.samples += samples

    def put_back(self) -> None:
        """Undo the last `take`."""
        assert self._before is not None
        packet, self._ends, gaps = self._before
        del self._gaps[gaps:]
        self._unread.appendleft(packet)
        self.packets -= 1
        self.samples -= packet[0]

    def report(self) -> VoiceReport:
        """Return how the voice was served so far."""
        seconds = self.made / self._rate_hz
        return VoiceReport(
            first_sound_ms=None if self._first is None else (self._first - self._begun) / NS_PER_MS,
            lead_ms=self._last_lead / NS_PER_MS,
            gaps_ms=tuple(gap / NS_PER_MS for gap in self._gaps),
            real_time_factor=(self._last - self._begun) / 1e9 / seconds if seconds else None,
        )
