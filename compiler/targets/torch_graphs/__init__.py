"""Graphs as modules of torch, for compilers that take these: one function per operator."""
