"""What values hold that follows from lengths alone."""
