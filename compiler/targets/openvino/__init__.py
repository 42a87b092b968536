"""OpenVINO: the graph files that it compiles where they run, what it computes in, and how they are verified on it."""
