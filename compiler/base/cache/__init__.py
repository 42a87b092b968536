"""Results of stages, kept by what they were made from: inputs, code, and the files and variables that were read."""
