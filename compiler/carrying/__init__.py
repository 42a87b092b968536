"""What is carried in the place of states: operators that move to the new frames, and how the new states follow."""
