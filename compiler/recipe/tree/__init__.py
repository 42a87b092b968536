"""A recipe as it is written: values with their lines, short forms written out, and what is wrong told in its place."""
