"""One graph from capture to its artefacts: passes in order, each compared with the original and its proofs replayed."""
