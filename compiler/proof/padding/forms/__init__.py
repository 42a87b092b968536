"""Every padded form by the name under which a rule asks for it."""

from compiler.proof.padding.forms import lookup, newest, number, recurrence, reduction, windows_and_borders
from compiler.proof.padding.forms.site import Form

FORMS: dict[str, Form] = {
    **windows_and_borders.FORMS,
    **lookup.FORMS,
    **newest.FORMS,
    **number.FORMS,
    **recurrence.FORMS,
    **reduction.FORMS,
}
