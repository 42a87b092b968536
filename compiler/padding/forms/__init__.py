"""Every padded form by the name under which a rule asks for it."""

from compiler.padding.forms import convolution, lookup, number, recurrence, reduction
from compiler.padding.forms.site import Form

FORMS: dict[str, Form] = {
    **convolution.FORMS,
    **lookup.FORMS,
    **number.FORMS,
    **recurrence.FORMS,
    **reduction.FORMS,
}
