"""Targets TensorRT: checks graphs against its limits, plans engines, and ships the tools that build and try them."""
