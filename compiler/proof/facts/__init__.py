"""Defines facts about the values of a padded program, and the case of one node that a rule judges."""
