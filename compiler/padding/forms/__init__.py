"""Every padded form by the name under which a rule asks for it."""

from compiler.padding.forms import lookup, number, recurrence, reduction, windows_and_borders
from compiler.padding.forms.site import Form

FORMS: dict[str, Form] = {
    **windows_and_borders.FORMS,
    **lookup.FORMS,
    **number.FORMS,
    **recurrence.FORMS,
    **reduction.FORMS,
}
