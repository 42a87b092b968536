"""Two streams side by side through the bundle; the runtime keeps the states of each: `python run_tagger.py`."""

import numpy as np

import runtime_lite

with runtime_lite.Runtime() as runtime:
    model = runtime.load("dist/tagger")
    with model.open_stream(rows=2) as stream:
        for _ in range(10):
            scores = stream.push({"features": np.ones((2, 8, 40), np.float32)})["scores"]
print(scores.shape, scores.argmax(-1)[0])
