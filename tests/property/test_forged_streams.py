"""The checker refuses forged certificates of random step graphs."""

from tests.property.forged_streams import KINDS, claims_of, forged


def test_forged_certificates_are_refused_and_what_they_were_made_of_is_not() -> None:
    [claim] = claims_of(4)
    assert not claim.rejected_at()
    found = {kind: other.rejected_at() for kind, other in forged(claim, 4, len(KINDS))}
    assert len(found) >= 8
    assert sum(map(bool, found.values())) >= len(found) - 2
