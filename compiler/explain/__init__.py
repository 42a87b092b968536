"""What the proof says of every node, as text and as a picture."""
