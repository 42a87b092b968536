"""Every padded form by the name under which a rule asks for it."""

from compiler.padding import forms_convolution, forms_lookup, forms_number, forms_recurrence, forms_reduction
from compiler.padding.site import Form

FORMS: dict[str, Form] = {
    **forms_convolution.FORMS,
    **forms_lookup.FORMS,
    **forms_number.FORMS,
    **forms_recurrence.FORMS,
    **forms_reduction.FORMS,
}
