"""Facts about the values of a padded program, and the case that a rule is asked about."""
