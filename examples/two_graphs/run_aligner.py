"""Both graphs of one bundle: the encoder once per utterance, the step once per frame, each label fed to the next."""

import numpy as np

import runtime_lite

labels = [0]
with runtime_lite.Runtime() as runtime:
    model = runtime.load("dist/aligner")
    frames = model.run({"features": np.ones((1, 50, 40), np.float32)}, graph="encoder")["frames"]
    with model.open_stream(graph="step") as stream:
        for time in range(frames.shape[1]):
            scores = stream.push({"frame": frames[:, time], "label": np.array(labels[-1:])})["scores"]
            labels.append(int(scores[0].argmax()))
print(frames.shape, labels[1:])
