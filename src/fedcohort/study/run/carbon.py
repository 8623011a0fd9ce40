"""Energy and carbon of a study, measured by the package codecarbon, if the study asks for it.

Otherwise the report has only an estimate by a stated model (`report.footprint`). codecarbon reads
the processor's power counters if the system shows them, and uses its own model otherwise; carbon
follows from a country's mix of electricity. It works offline. It measures this computer only, with
everything else that runs on it.

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
#: Form of a country: ISO 3166-1 alpha-3.
COUNTRY = re.compile(r"[A-Z]{3}")


def check(country: str) -> None:
    """Refuse a missing package, or a country that it does not know.

    Raises
    ------
    NotSupported : as above; the package would take another mix of electricity.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise NotSupported(
            f"carbon: the package {PACKAGE} is missing: pip install 'fedcohort[carbon]'. Without "
            f"the key the report has an estimate by a stated model."
        )
    known = importlib.import_module(f"{PACKAGE}.input").DataSource().get_global_energy_mix_data()
    if country not in known:
        raise NotSupported(
            f"carbon: {PACKAGE} has no electricity mix of {country!r}. Give the three letters "
            f"(ISO 3166-1) of a country with a similar mix."
        )


@contextmanager
def measured(country: str) -> Generator[dict[str, Any]]:
    """Measure the work inside; the dictionary is filled at its end.

    Keys: ``seconds``, ``energy`` in kWh, ``carbon`` in grams of CO₂ equivalent, ``country``, and
    ``by``, the package. It stays empty if `country` is "".
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
