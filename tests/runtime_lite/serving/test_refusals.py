"""A refusal for want of room says where and why, and what to do."""

from runtime_lite.serving.refusals import overloaded


def test_who_is_refused_hears_why() -> None:
    error = overloaded("encoder.submit", "draining")
    assert error.reason == "draining"
    assert str(error) == (
        "encoder.submit: expected a runtime with room, got one without: draining; "
        "try again later, or use another runtime"
    )
