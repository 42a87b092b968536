"""Targets OpenVINO on CPUs: writes its graph files, chooses the types it computes in, and verifies its results."""
