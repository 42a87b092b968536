"""OpenVINO target: graph files that it compiles where they run, the types it computes in, and its verification."""
