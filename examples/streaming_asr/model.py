"""A streaming Conformer CTC recogniser, as researchers write and hand over such models.

Every call takes 67 feature frames (hop 64), appends the new hidden frames to caches that grow without bound, and
returns the grown caches. The first call of a stream has no caches; `build_first` and `build` are the two call forms of
the same checkpoint. Nothing in it is prepared for deployment.

    features [batch, frames, 80] -> convolutional subsampling by 4 -> Conformer layers
        -> logits [batch, frames / 4, outputs]

Sources: Conformer (Gulati et al. 2020, arXiv 2005.08100); chunk-wise streaming with layer-output caches as in U2
(Zhang et al. 2020, arXiv 2012.05481); two-term attention with content and position biases (Dai et al. 2019,
arXiv 1901.02860) without the relative shift.
"""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CHUNK_FRAMES = 16
"""Hidden frames per chunk, after subsampling by 4."""

SUBSAMPLING = 4
HOP_FRAMES = CHUNK_FRAMES * SUBSAMPLING
"""Feature frames between the starts of two chunks."""

CALL_FRAMES = HOP_FRAMES + 3
"""Feature frames per call: two valid 3-wide stride-2 convolutions need 3 frames beyond the hop."""

WINDOW_FRAMES = 128
"""Left context in hidden frames that the model is trained with, per layer."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of one recogniser.

    Attributes:
        layers: Conformer layers.
        width: hidden channels.
        heads: attention heads; divides `width`.
        feed_forward: inner channels of the feed-forward modules.
        kernel: taps of the causal depthwise convolution; the convolution cache holds `kernel - 1` frames.
        outputs: CTC labels, blank included.
        subsampling_channels: channels of the two subsampling convolutions.
        bins: log-mel bins per feature frame.
        max_positions: rows of the position table.
        dropout: probability, active in training only.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    kernel: int
    outputs: int
    subsampling_channels: int
    bins: int = 80
    max_positions: int = 5000
    dropout: float = 0.0


FULL = Config(layers=12, width=256, heads=4, feed_forward=2048, kernel=15, outputs=4233, subsampling_channels=256)
SMALL = Config(
    layers=6, width=144, heads=4, feed_forward=576, kernel=15, outputs=257, subsampling_channels=64, dropout=0.05
)


def position_table(rows: int, width: int) -> Tensor:
    """Return the sinusoidal position table [1, rows, width] (Vaswani et al. 2017, section 3.5)."""
    position = torch.arange(rows, dtype=torch.float32).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * -(math.log(10000.0) / width))
    table = torch.zeros(1, rows, width)
    table[0, :, 0::2] = torch.sin(position * rate)
    table[0, :, 1::2] = torch.cos(position * rate)
    return table


class Subsampling(nn.Module):
    """Two valid 3x3 stride-2 convolutions over [time, bins]: a quarter of the frames, then a projection to `width`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.subsampling_channels
        self.conv1 = nn.Conv2d(1, channels, 3, 2)
        self.conv2 = nn.Conv2d(channels, channels, 3, 2)
        self.project = nn.Linear(channels * (((config.bins - 1) // 2 - 1) // 2), config.width)

    def forward(self, features: Tensor) -> Tensor:
        x = functional.relu(self.conv1(features.unsqueeze(1)))
        x = functional.relu(self.conv2(x))
        batch, channels, time, bins = x.shape
        projected: Tensor = self.project(x.transpose(1, 2).reshape(batch, time, channels * bins))
        return projected


class FeedForward(nn.Module):
    """Swish feed-forward module, [batch, time, width] to the same shape."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, config.feed_forward)
        self.reduce = nn.Linear(config.feed_forward, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(functional.silu(self.expand(self.norm(x))))
        out: Tensor = self.dropout(self.reduce(hidden))
        return out


class Attention(nn.Module):
    """Multi-head attention whose scores add a content term and a position term per key."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_width = config.width // config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.position = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, config.width)
        self.content_bias = nn.Parameter(torch.zeros(config.heads, self.head_width))
        self.position_bias = nn.Parameter(torch.zeros(config.heads, self.head_width))

    def split(self, x: Tensor) -> Tensor:
        """Split the width into heads: [batch, time, width] to [batch, heads, time, head width]."""
        heads: Tensor = x.unflatten(-1, (self.heads, self.head_width))  # type: ignore[no-untyped-call]
        return heads.transpose(1, 2)

    def forward(self, queries: Tensor, joined: Tensor, positions: Tensor) -> Tensor:
        """Attend from `queries` [batch, n, width] to `joined` [batch, L, width]; `positions` is [1, L, width]."""
        query = self.query(queries).unflatten(-1, (self.heads, self.head_width))
        content = (query + self.content_bias).transpose(1, 2) @ self.split(self.key(joined)).transpose(-1, -2)
        position = (query + self.position_bias).transpose(1, 2) @ self.split(self.position(positions)).transpose(-1, -2)
        weights = torch.softmax((content + position) / math.sqrt(self.head_width), dim=-1)
        mixed = (weights @ self.split(self.value(joined))).transpose(1, 2).flatten(2)
        out: Tensor = self.output(mixed)
        return out

    def forward_utterance(self, x: Tensor, table: Tensor) -> Tensor:
        """Attend over all frames [batch, time, width]; each sees its own chunk and the 128 frames before it."""
        query = self.query(x).unflatten(-1, (self.heads, self.head_width))
        content = (query + self.content_bias).transpose(1, 2) @ self.split(self.key(x)).transpose(-1, -2)
        window = table[:, : WINDOW_FRAMES + CHUNK_FRAMES]
        per_slot = (query + self.position_bias).transpose(1, 2) @ self.split(self.position(window)).transpose(-1, -2)
        frame = torch.arange(x.shape[1])
        chunk = frame - frame % CHUNK_FRAMES  # where the chunk of a query starts
        slot = frame.unsqueeze(0) - (chunk - WINDOW_FRAMES).clamp(min=0).unsqueeze(1)  # of each key in that window
        seen = (slot >= 0) & (frame.unsqueeze(0) < chunk.unsqueeze(1) + CHUNK_FRAMES)
        slots = slot.clamp(0, WINDOW_FRAMES + CHUNK_FRAMES - 1).expand(x.shape[0], self.heads, -1, -1)
        scores = (content + per_slot.gather(-1, slots)) / math.sqrt(self.head_width)
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1)
        out: Tensor = self.output((weights @ self.split(self.value(x))).transpose(1, 2).flatten(2))
        return out


class Convolution(nn.Module):
    """Causal Conformer convolution module; the left context is the cache, or zeros in the first call."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.context = config.kernel - 1
        self.norm = nn.LayerNorm(config.width)
        self.expand = nn.Conv1d(config.width, 2 * config.width, 1)
        self.depthwise = nn.Conv1d(config.width, config.width, config.kernel, groups=config.width)
        self.depthwise_norm = nn.LayerNorm(config.width)
        self.reduce = nn.Conv1d(config.width, config.width, 1)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the output [batch, n, width] and the next cache [batch, width, kernel - 1]."""
        hidden = functional.glu(self.expand(self.norm(x).transpose(1, 2)), dim=1)
        hidden = functional.pad(hidden, (self.context, 0)) if cache is None else torch.cat([cache, hidden], dim=2)
        next_cache = hidden[:, :, -self.context :]
        hidden = self.depthwise(hidden).transpose(1, 2)
        hidden = functional.silu(self.depthwise_norm(hidden)).transpose(1, 2)
        return self.dropout(self.reduce(hidden).transpose(1, 2)), next_cache


class Layer(nn.Module):
    """One Conformer layer over [cached frames ++ new frames]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.feed_forward1 = FeedForward(config)
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.convolution = Convolution(config)
        self.feed_forward2 = FeedForward(config)
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self, joined: Tensor, positions: Tensor, new_frames: int, layer_cache: Tensor | None, conv_cache: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return this layer's cache joined with its new frames [batch, L, width], and the next convolution cache."""
        joined = joined + 0.5 * self.feed_forward1(joined)
        normed = self.attention_norm(joined)
        x = joined[:, -new_frames:] + self.attention(normed[:, -new_frames:], normed, positions)
        x, next_conv_cache = self.finish(x, conv_cache)
        return x if layer_cache is None else torch.cat([layer_cache, x], dim=1), next_conv_cache

    def finish(self, x: Tensor, conv_cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """Apply everything after attention, to new frames only."""
        convolved, next_conv_cache = self.convolution(x, conv_cache)
        x = x + convolved
        x = x + 0.5 * self.feed_forward2(x)
        return self.norm(x), next_conv_cache

    def forward_utterance(self, x: Tensor, table: Tensor) -> Tensor:
        """Apply the same function to all chunks of an utterance at once (training)."""
        x = x + 0.5 * self.feed_forward1(x)
        x = x + self.attention.forward_utterance(self.attention_norm(x), table)
        return self.finish(x, None)[0]


class StreamingConformer(nn.Module):
    """The recogniser. Three call forms share the weights: first call, later call, and whole utterances for training."""

    positions: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.subsampling = Subsampling(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, config.outputs)
        self.register_buffer("mean", torch.zeros(config.bins))
        self.register_buffer("scale", torch.ones(config.bins))
        self.register_buffer("positions", position_table(config.max_positions, config.width), persistent=False)

    def step(
        self, features: Tensor, subsampling_cache: Tensor | None, layer_caches: list[Tensor], conv_caches: list[Tensor]
    ) -> tuple[Tensor, ...]:
        """Run one chunk; return the logits of the new frames, then the grown caches in the order of the inputs."""
        x = self.subsampling((features - self.mean) * self.scale)
        new_frames = x.shape[1]
        joined = x if subsampling_cache is None else torch.cat([subsampling_cache, x], dim=1)
        positions = self.positions[:, : joined.shape[1]]
        next_layer_caches, next_conv_caches = [joined], []
        for index, layer in enumerate(self.layers):
            layer_cache = layer_caches[index] if layer_caches else None
            conv_cache = conv_caches[index] if conv_caches else None
            joined, next_conv_cache = layer(joined, positions, new_frames, layer_cache, conv_cache)
            next_layer_caches.append(joined)
            next_conv_caches.append(next_conv_cache)
        logits = self.output(self.norm(joined[:, -new_frames:]))
        return logits, *next_layer_caches, *next_conv_caches

    def forward(self, features: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Run a later call: features [batch, 67, bins], then the subsampling, layer and convolution caches."""
        layers = self.config.layers
        return self.step(features, caches[0], list(caches[1 : 1 + layers]), list(caches[1 + layers :]))

    def forward_utterance(self, features: Tensor) -> Tensor:
        """Return logits [batch, ((time - 1) // 2 - 1) // 2, outputs] of whole utterances [batch, time, bins].

        They equal the logits of all calls chunk by chunk; the last chunk may be short.
        """
        x = self.subsampling((features - self.mean) * self.scale)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            x = layer.forward_utterance(x, self.positions)
        logits: Tensor = self.output(self.norm(x))
        return logits


class CallForm(nn.Module):
    """Another way to call the recogniser; checkpoints have the recogniser's own names."""

    def __init__(self, model: StreamingConformer) -> None:
        super().__init__()
        self.model = model

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.model.load_state_dict(*args, **options)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.model.state_dict(*args, **options)


class FirstCall(CallForm):
    """The call form that starts a stream, without caches as inputs."""

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        return self.model.step(features, None, [], [])


class WholeUtterance(CallForm):
    """The call form that takes all features of an utterance at once."""

    def forward(self, features: Tensor) -> Tensor:
        return self.model.forward_utterance(features)


def build() -> StreamingConformer:
    """Return the trained recogniser in later-call form (26 inputs in `full`, 14 in `small`)."""
    return StreamingConformer(SMALL)


def build_first() -> FirstCall:
    """Return the trained recogniser in first-call form."""
    return FirstCall(build())


def build_offline() -> WholeUtterance:
    """Return the trained recogniser for whole utterances."""
    return WholeUtterance(build())


def build_full() -> StreamingConformer:
    """Return the large configuration with fixed random weights, to show structure and speed."""
    torch.manual_seed(0)
    return StreamingConformer(FULL)


def build_full_first() -> FirstCall:
    """Return the large configuration in first-call form, with the same weights."""
    return FirstCall(build_full())


def build_full_offline() -> WholeUtterance:
    """Return the large configuration for whole utterances, with the same weights."""
    return WholeUtterance(build_full())
