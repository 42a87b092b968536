"""Compiles graphs for Arm's Ethos-U NPUs: quantises them, lowers them to TOSA, and runs Arm's reference model."""
