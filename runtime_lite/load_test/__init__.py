"""Runs load tests with an open loop: sends requests at their times, whether or not earlier ones are answered."""
