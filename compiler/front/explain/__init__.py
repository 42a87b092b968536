"""Shows the proof of every node, as text and as a picture."""
