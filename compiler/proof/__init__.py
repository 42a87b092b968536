"""Proves padding, batching and derived steps by facts and a table of rules, and writes what these ask for."""
