"""Turns a text into packets of sound in one request, without returning to the caller between decoding steps.

A voice is one request with two streams, of steps and of the codec. Steps share runs with those of other voices, and so
do chunks of the codec; the next step never waits for the codec. What is needed soonest runs first: a part is due when
the sound that its reader has is played. A voice that fails, is cancelled or is not read affects no other.
"""

from collections.abc import Callable, Sequence
from functools import partial

from runtime_lite.decoding.codec_chunks import SOUND, CodecChunks, Samples
from runtime_lite.decoding.packets import PacketSizes
from runtime_lite.decoding.playback import Playback, Taken, VoiceReport
from runtime_lite.decoding.steps import Ended, Steps
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Voice as VoiceOfBundle
from runtime_lite.scheduling.clock import NS_PER_MS, Clock
from runtime_lite.scheduling.task import FIRST_PACKET
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.request import LiveStream, Outputs, Owner, Part
from runtime_lite.serving.ticket import ResponseQueue

LOW = 0.4
"""Part of the lead of a parked voice at which it goes on."""

_NEVER = 1 << 62
"""A time at which all that was taken has been played."""


class Voice(ResponseQueue[Samples]):
    """A text that is being spoken; iterate over it, or await it, for its packets: float arrays of samples.

    Attributes:
        sample_rate_hz: samples per second.
        tokens: the tokens drawn so far, without the stop token; each is a frame.

    Args:
        owner: the server.
        where: name of the call in messages.
        voice: the voice of the bundle.
        steps: its steps.
        codec: its codec.
        streams: the streams of both, which belong to this request alone.
        sizes: chooses the frames of packets; its functions are called under the server's lock.
        count: returns the number of voices; called under the server's lock.
        clock: the server's.
        close: ends a stream.
        room: number of packets that may be unread; the voice pauses there.
        lead_ns: length of the sound that is not played yet at which the voice pauses; None for no limit.
    """

    is_continued = True

    def __init__(
        self,
        owner: Owner,
        where: str,
        voice: VoiceOfBundle,
        steps: Steps,
        codec: CodecChunks,
        streams: Sequence[LiveStream],
        sizes: PacketSizes,
        count: Callable[[], int],
        clock: Clock,
        close: Callable[[LiveStream], object],
        room: int,
        lead_ns: int | None,
    ) -> None:
        """Start before the first call."""
        super().__init__(owner, where, streams[0].options.service.name, 1, room)
        self.sample_rate_hz = voice.sample_rate_hz
        self.tokens: list[int] = []
        self._samples_per_frame = voice.samples_per_frame
        self._steps, self._codec, self._streams, self._sizes, self._count_voices = steps, codec, streams, sizes, count
        self._clock, self._close, self._lead_ns = clock, close, lead_ns
        self._begun = clock()
        self._playback = Playback(voice.sample_rate_hz, self._begun)
        self._drawn: tuple[int, Array | None] | None = None
        self._chunk: Part | None = None
        self._sound: Samples | None = None
        self._has_packet = self._is_decoding = self._is_parked = self._is_over = False
        self._wanted: int | None = None

    @property
    def ended_by(self) -> Ended:
        """What ended it: `stop`, `max_tokens`, `too_long`, the most frames of its text, or `window`, that of a cache.

        Empty while it goes on, and where it failed or was cancelled.
        """
        return self._steps.ended_by

    @property
    def least_margin(self) -> float:
        """The smallest margin of a draw so far; see `Generation.least_margin`."""
        return self._steps.least_margin

    @property
    def taken(self) -> Taken:
        """The part of the voice that its reader has taken."""
        with self._owner.lock:
            packets, samples = self._playback.packets, self._playback.samples
        return Taken(packets, samples, samples // self._samples_per_frame)

    @property
    def report(self) -> VoiceReport:
        """How the voice was served so far."""
        with self._owner.lock:
            return self._playback.report()

    def cancel(self) -> Taken:  # type: ignore[override]  # a dialogue goes on from what was heard
        """Stop the voice: no step and no chunk of the codec begins any more, and unread packets are dropped.

        Returns:
            The part that its reader has taken.
        """
        super().cancel()
        return self.taken

    # Called by the server

    def prepare(self, part: Part, outputs: Outputs) -> None:
        """Draw the next token and make the step that feeds it, or take the sound of a chunk.

        Raises:
            ExecutorFailed: nothing can be drawn of the scores.
            BadInput: the step does not take the token.
        """
        if part.index == SOUND:
            self._sound = self._codec.samples(outputs)
            return
        token = self._steps.take(outputs)
        if token is not None:
            self._drawn = token, self._codec.noise()
            if not self.ended_by:
                self._chunk = self._steps.following(self, token)
                drawn = (len(self.tokens) + 1) * self._samples_per_frame
                self._chunk.soft = self._due(drawn - self._playback.made)

    def _due(self, more: int = 0) -> int:
        """Return the time by which the sound behind what was made, and some more samples, should be there."""
        now, playback = self._clock(), self._playback
        starts = now if playback.made else self._begun + int(FIRST_PACKET.soft_ms * NS_PER_MS)
        return starts + playback.lead_ns(now, more)

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """Append a frame or a packet. Return whether it was the last one."""
        self._has_packet = False
        if index != SOUND:
            if self._drawn is not None:
                token, noise = self._drawn
                self.tokens.append(token)
                self._codec.add(token, noise)
                self._drawn = None
            self._is_over = self.ended_by != ""  # here: a chunk may be put between the last draw and its frame
        else:
            self._is_decoding = False
            sound, self._sound = self._sound, None
            if sound is not None and sound.size:
                self._ring.append(sound)
                self._playback.add(sound.size, self._clock())
                self._has_packet = True
            self._wanted = None
        return self._is_over and not (self._codec.waiting or self._codec.owes or self._is_decoding)

    def is_response(self, index: int) -> bool:
        """Return whether a packet came with the answer that was `put` last."""
        return self._has_packet

    def following(self) -> Sequence[Part]:
        """Return the next step, and the next chunk of the codec if there are frames enough."""
        step, self._chunk = self._chunk, None
        chunk = None if self._is_decoding else self._next_chunk()
        self._is_decoding = self._is_decoding or chunk is not None
        return [part for part in (step, chunk) if part is not None]

    def _next_chunk(self) -> Part | None:
        waiting = self._codec.waiting
        if not waiting:
            return self._codec.flush(self, self._due()) if self._is_over and self._codec.owes else None
        if not self._is_over and waiting < self._frames_wanted():
            return None
        return self._codec.chunk(self, self._sizes.chunk(waiting), self._due())

    def _frames_wanted(self) -> int:
        """Return the frames of the next packet, which are chosen once the packet before it has been made."""
        if self._wanted is None:
            voices = self._count_voices()
            lead = self._playback.lead_ns(self._clock())
            made = self._playback.made
            wanted = self._sizes.following(lead, voices) if made else self._sizes.first(voices)
            if self._lead_ns is not None:  # else the codec could wait for steps, which wait until less is ahead
                wanted = min(wanted, max(int(LOW * self._lead_ns) // self._sizes.frame_ns, 1))
            self._wanted = wanted
        return self._wanted

    def waits_for_reader(self, part: Part) -> bool:
        """Return whether the caller must read a packet before a part runs: a step also where unread sound is enough."""
        if self.is_full or part.index == SOUND or self._lead_ns is None:
            return self.is_full
        unread = self._ahead(_NEVER)
        return unread > int(LOW * self._lead_ns) if self._is_parked else unread >= self._lead_ns

    @property
    def holds_back(self) -> bool:
        """Whether parts may wait for the caller to read."""
        return self.is_full or self._lead_ns is not None

    def parked_until(self, part: Part, now: int) -> int | None:
        """Return the time at which a voice with sound enough makes its next step; None for now."""
        if self._lead_ns is None or part.index == SOUND:
            return None
        ahead, low = self._ahead(now), int(LOW * self._lead_ns)
        self._is_parked = ahead > low if self._is_parked else ahead >= self._lead_ns
        return now + ahead - low if self._is_parked else None

    def _ahead(self, now: int) -> int:
        """Return the length of the sound that is not played yet, that of tokens which the codec has not decoded too."""
        frames = max(len(self.tokens) - self._codec.lag, 0)
        return self._playback.lead_ns(now, max(frames * self._samples_per_frame - self._playback.made, 0))

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """End the voice. Its streams are closed right behind, without the lock."""
        super().end(outcome, reason, error)
        self._chunk = None
        self.wakers += [partial(self._close, stream) for stream in self._streams]

    def _pop(self) -> Samples:
        self._playback.take(self._clock())
        return super()._pop()

    def _put_back(self, response: Samples) -> None:
        super()._put_back(response)
        self._playback.put_back()
