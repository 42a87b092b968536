"""The format of a bundle, read without trust: every size, hash and field is checked before it is used."""
