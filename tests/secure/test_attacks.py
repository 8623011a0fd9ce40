"""An active coordinator's attacks on masked sums: all are refused, each for its own reason."""

import pytest

from secure_attacks import ATTACKS

REASONS = {
    "short seed": ("4 bytes", "not sound"),
    "overlap": ("twice among survivors and dropped", "not together the members"),
    "threshold": ("own rules ask for", "survivors signed"),
    "key swap": ("not signed by the identity pinned", "advertised twice", "than its own"),
    "replay": ("another run", "used before", "not sound", "was used"),
    "second unmask": ("other survivors", "was answered for other sites"),
    "forged survivors": ("no survivor", "not on what this site signed", "has not signed"),
    "n < 3": ("needs 3", "one identity key", "weigh at least 1 %", "2 survivors"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_one_line_that_says_why(name):
    told = ATTACKS[name]()
    assert all("\n" not in text for text in told)
    for reason in REASONS[name]:
        assert any(reason in text for text in told), reason
