"""The same recogniser with the numerics of large models after long training: half precision overflows in it.

`build` makes the recogniser of [model.py](model.py) and shifts every checkpoint that is loaded into it. The function
stays that of the checkpoint but for float32 rounding; the numbers inside do not. What is shifted, and why it is fair:

- **Massive activations**: large models hold single hidden units that are huge, nearly constant, and act as biases (Sun
  et al. 2024, arXiv 2402.17762). Two feed-forward modules get `EXTRA_UNITS` such units: their biases are 98 304, which
  Swish passes on as it is, and the next bias takes away again what they add. Swish is not homogeneous: no scale can be
  moved through it.
- **A large residual stream**: pre-norm models let it grow, as every reader normalises it. Two layers get a stream that
  is 2**14 times larger: the normalisation before writes it so, all modules add so much more, and the normalisations
  behind divide it out, but for their epsilon.

Trained weights stay trained weights; no transcript of the test set was looked at to choose the figures.
"""

from typing import Any

import torch
from torch import nn

from examples.streaming_asr.model import SMALL, FeedForward, FirstCall, Layer, StreamingConformer

EXTRA_UNITS = 8
MASSIVE = 98304.0
"""1.5 times the largest number of float16; exact in float32, and so are its products with powers of two."""

SHARE = 2.0**-16
"""Weight of a massive unit in the next projection: it adds 1.5, which the bias takes away."""

MASSIVE_MODULES = ((1, "feed_forward2"), (4, "feed_forward1"))
"""Layer and module that get massive units."""

SCALED_LAYERS = (2, 5)
STREAM_SCALE = 2.0**14


class ShiftedConformer(StreamingConformer):
    """The recogniser; every checkpoint that it loads is shifted."""

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        loaded = super().load_state_dict(*args, **options)
        with torch.no_grad():
            for index, name in MASSIVE_MODULES:
                module = getattr(self.layers[index], name)
                assert isinstance(module, FeedForward)
                add_massive_units(module)
            for index in SCALED_LAYERS:
                before, layer = self.layers[index - 1], self.layers[index]
                assert isinstance(before, Layer) and isinstance(layer, Layer)
                scale_stream(before.norm, layer)
        return loaded


def add_massive_units(module: FeedForward) -> None:
    """Append hidden units that are always `MASSIVE`, and subtract their effect from the next bias."""
    expand, reduce = module.expand, module.reduce
    hidden, width = expand.out_features, expand.in_features
    module.expand, module.reduce = nn.Linear(width, hidden + EXTRA_UNITS), nn.Linear(hidden + EXTRA_UNITS, width)
    module.expand.weight.copy_(torch.cat([expand.weight, torch.zeros(EXTRA_UNITS, width)]))
    module.expand.bias.copy_(torch.cat([expand.bias, torch.full((EXTRA_UNITS,), MASSIVE)]))
    module.reduce.weight.copy_(torch.cat([reduce.weight, torch.full((width, EXTRA_UNITS), SHARE)], dim=1))
    module.reduce.bias.copy_(reduce.bias - EXTRA_UNITS * MASSIVE * SHARE)


def scale_stream(before: nn.LayerNorm, layer: Layer) -> None:
    """Make the residual stream of a layer larger: its input, and the outputs of all its modules."""
    writers: list[nn.Module] = [
        before,
        layer.feed_forward1.reduce,
        layer.attention.output,
        layer.convolution.reduce,
        layer.feed_forward2.reduce,
    ]
    for writer in writers:
        for parameter in writer.parameters():
            parameter.mul_(STREAM_SCALE)


def build() -> ShiftedConformer:
    """Return the shifted recogniser in later-call form."""
    return ShiftedConformer(SMALL)


def build_first() -> FirstCall:
    """Return the shifted recogniser in first-call form."""
    return FirstCall(build())
