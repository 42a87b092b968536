"""Load tests with an open loop: requests come at their times, whether or not earlier ones are answered."""
