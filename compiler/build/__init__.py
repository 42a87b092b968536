"""From a recipe to a bundle: captured, lowered, verified, measured and written."""
