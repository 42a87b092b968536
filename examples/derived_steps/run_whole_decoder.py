"""Greedy decoding: a prompt in one call, then one token per call; the runtime keeps the derived caches."""

import numpy as np

import runtime_lite

tokens = [1, 7, 4, 12, 9]
with runtime_lite.Runtime() as runtime:
    model = runtime.load("dist/whole_decoder")
    with model.open_stream() as stream:
        scores = stream.push({"tokens": np.array([tokens])})["scores"]
        while len(tokens) < 40:
            tokens.append(int(scores[0, -1].argmax()))
            scores = stream.push({"tokens": np.array([[tokens[-1]]])})["scores"]
print(len(tokens), tokens)
