"""Arm's NPUs of the family Ethos-U: graphs quantised and lowered to TOSA, executed by Arm's reference model."""
