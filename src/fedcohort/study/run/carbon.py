"""What a study took in energy, as the package codecarbon measures it, where the study asks.

Without it the report has an estimate by a stated model (`report.footprint`) alone. With it, power
is read from the processor's own counters where the system shows them, and is codecarbon's model
otherwise; carbon is that of a country's mix of electricity. It works offline: nothing is looked up
and nothing is sent. Only this computer is measured, and what else runs on it counts too.

Revealed: nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from fedcohort.protocol import NotSupported

PACKAGE = "codecarbon"
#: How countries are written: ISO 3166-1 alpha-3.
COUNTRY = re.compile(r"[A-Z]{3}")


def check(country: str) -> None:
    """Refuse where the package is not installed, or does not know the country.

    Raises
    ------
    NotSupported : it is not, or does not: it would take another mix of electricity.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise NotSupported(
            f"carbon: this needs the package {PACKAGE}: pip install 'fedcohort[carbon]'. Without "
            f"the key the report has an estimate by a stated model."
        )
    known = importlib.import_module(f"{PACKAGE}.input").DataSource().get_global_energy_mix_data()
    if country not in known:
        raise NotSupported(
            f"carbon: {PACKAGE} knows no electricity of {country!r}; give another country's three "
            f"letters of ISO 3166-1, such as that of a neighbour with a like mix."
        )


@contextmanager
def measured(country: str) -> Generator[dict[str, Any]]:
    """Measure what is done inside; the dictionary is filled at its end.

    It then has ``energy`` in kWh, ``carbon`` in grams of CO₂ equivalent, ``country``, and what
    measured them, ``by``; it stays empty where `country` is "".
    """
    found: dict[str, Any] = {}
    if not country:
        yield found
        return
    package = importlib.import_module(PACKAGE)
    tracker = package.OfflineEmissionsTracker(
        country_iso_code=country, save_to_file=False, log_level="error", allow_multiple_runs=True
    )
    tracker.start()
    try:
        yield found
    finally:
        kilograms = tracker.stop()
    spent = tracker.final_emissions_data
    found |= {
        "seconds": round(float(spent.duration), 1),
        "energy": float(spent.energy_consumed),
        "carbon": 1000.0 * float(kilograms or 0.0),
        "country": country,
        "by": f"{PACKAGE} {package.__version__}",
    }
