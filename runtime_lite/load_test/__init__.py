"""Load as users make it: requests that come when they come, whether or not earlier ones are answered."""
