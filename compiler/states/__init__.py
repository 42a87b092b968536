"""The compiler's half of what a call hands to the next: which states a stream keeps, and what stands for them."""
