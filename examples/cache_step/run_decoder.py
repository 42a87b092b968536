"""Greedy decoding: each token is the likeliest one after those before it; the runtime keeps keys and values."""

import numpy as np

import runtime_lite

tokens = [1]
with runtime_lite.Runtime() as runtime:
    model = runtime.load("dist/decoder")
    with model.open_stream() as stream:
        for _ in range(40):
            scores = stream.push({"tokens": np.array([[tokens[-1]]])})["scores"]
            tokens.append(int(scores[0, -1].argmax()))
print(len(tokens), tokens)
