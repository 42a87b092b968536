"""Runs the graphs of one bundle: encoder and scorer as one request, the step once per frame with the last label."""

import numpy as np

import runtime_lite

labels = [0]
with runtime_lite.Runtime() as runtime:
    model = runtime.load("dist/aligner")
    together = model.run({"features": np.ones((1, 50, 40), np.float32)})  # the wired graphs: no graph is named
    frames, confidence = together["frames"], together["confidence"]
    with model.open_stream(graph="step") as stream:
        for time in range(frames.shape[1]):
            scores = stream.push({"frame": frames[:, time], "label": np.array(labels[-1:])})["scores"]
            labels.append(int(scores[0].argmax()))
print(frames.shape, confidence.shape, labels[1:])
