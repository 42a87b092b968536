"""Autoregressive generation: tokens are drawn and fed back within the runtime, step by step."""
