"""Forms: not written yet."""

from compiler.padding.site import Form

FORMS: dict[str, Form] = {}
