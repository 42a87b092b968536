"""The model: chunk calls and the training form are one function, beyond the window as well."""

import numpy as np
import torch

from examples.streaming_asr import evaluate, model

CHUNKS = 12
"""192 hidden frames: the window of 128 overflows."""


def test_streaming_equals_the_utterance_form_when_the_window_overflows() -> None:
    torch.manual_seed(3)
    recogniser = model.build().eval()
    for bias in recogniser.parameters():
        if bias.dim() == 2 and bias.shape[0] == model.SMALL.heads:
            torch.nn.init.normal_(bias)  # the position and content biases start at zero and would hide an error
    frames = torch.randn(1, CHUNKS * model.HOP_FRAMES + 3, model.SMALL.bins)
    with torch.inference_mode():
        whole = recogniser.forward_utterance(frames).numpy()
    stream = evaluate.OriginalStream(recogniser)
    starts = range(0, CHUNKS * model.HOP_FRAMES, model.HOP_FRAMES)
    pieces = [stream.push({"features": frames[:, start : start + model.CALL_FRAMES].numpy()}) for start in starts]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, rtol=0, atol=2e-5)


def test_trained_checkpoint_fits_the_model() -> None:
    recogniser = evaluate.load()
    assert evaluate.CHECKPOINT_PATH.stat().st_size <= 20e6
    assert all(bool(torch.isfinite(value).all()) for value in recogniser.state_dict().values())
    assert float(recogniser.mean.abs().min()) > 0, "feature normalisation must be part of the checkpoint"


def test_first_call_takes_the_same_checkpoint() -> None:
    first = model.build_first()
    first.load_state_dict(evaluate.load().state_dict())
    logits, *caches = first.eval()(torch.zeros(1, model.CALL_FRAMES, model.SMALL.bins))
    assert logits.shape == (1, model.CHUNK_FRAMES, model.SMALL.outputs)
    assert len(caches) == 2 * model.SMALL.layers + 1
