"""What a recipe may say, as one frozen record; what no build can do is refused with its line before anything runs."""
