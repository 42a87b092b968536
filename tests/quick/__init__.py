"""The tests that stand nearest to a change, in the order of their distance, for as long as they may take."""
