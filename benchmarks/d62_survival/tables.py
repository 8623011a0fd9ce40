"""The four cohorts of the benchmark as plain tables: features, `time`, `event`.

Only GBSG2 comes with fedcohort. The others are public and are read from the user's own copies:
the IWG-PM cohort of myelodysplastic syndromes (Bernard et al. 2022), and METABRIC and SUPPORT as
DeepSurv's authors (Katzman et al. 2018) published them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

#: EuroMDS' genes that the cohort's panel has.
GENES = (
    "IDH2 ETV6 SF3B1 ATRX IDH1 NOTCH1 ASXL1 FLT3 BCOR BCORL1 TET2 ZRSR2 DNMT3A RUNX1 SMC1A MPL "
    "BRAF NRAS NF1 SMC3 PHF6 EZH2 U2AF1 GNAS WT1 GNB1 RAD21 SRSF2 TP53 CBL KRAS PTPN11 GATA2 KIT "
    "NPM1 JAK2 CEBPA STAG2 KDM6A CSF3R SETBP1 PPM1D"
).split()
CLINICAL = ["age", "bm_blast_pct", "hb", "plt", "anc", "wbc", "monocytes"]
CYTOGENETIC = (
    "loss5_isolated_del5q loss5_plus_other loss7_7q gain8 loss9_9q loss11_11q loss12_12p "
    "loss13_13q i17q_or_loss17p loss20_20q lossY gain21 inv3_t33"
).split()


def mds(path: Path) -> pd.DataFrame:
    """Return the MDS cohort with D6.2's kinds of features: overall survival in years.

    63 features: 7 clinical, sex, 13 cytogenetic flags and 42 genes; rows without a time or with
    time 0 are left out, blood counts are kept as they are (missing ones are imputed by the study).
    """
    raw = pd.read_csv(path, low_memory=False)
    names = ["sex", *(f"cyto_{c}" for c in CYTOGENETIC), *(f"gene_{g}" for g in GENES)]
    return _survival(raw, [*CLINICAL, *names], "os_years", "os_event")


def mds_all(path: Path, prevalence: float = 0.01) -> pd.DataFrame:
    """Return the MDS cohort with every clinical, cytogenetic and gene column.

    Flags are kept if at least `prevalence` of the rows carry them, which no outcome decides.
    """
    raw = pd.read_csv(path, low_memory=False)
    flags = [c for c in raw.columns if c.startswith(("cyto_", "gene_"))]
    numeric = raw[flags].apply(pd.to_numeric, errors="coerce")
    kept = [c for c in flags if (numeric[c].fillna(0) != 0).mean() >= prevalence]
    return _survival(raw, [*CLINICAL, "sex", *kept], "os_years", "os_event")


def deepsurv(path: Path) -> pd.DataFrame:
    """Return METABRIC or SUPPORT: x0 … , time, event."""
    raw = pd.read_csv(path)
    return _survival(raw, [c for c in raw.columns if c.startswith("x")], "time", "event")


def _survival(raw: pd.DataFrame, features: list[str], time: str, event: str) -> pd.DataFrame:
    table = raw[features].copy()
    table["time"] = pd.to_numeric(raw[time], errors="coerce")
    table["event"] = pd.to_numeric(raw[event], errors="coerce")
    ok = table["time"].gt(0) & table["event"].isin([0, 1])
    table = table[ok].reset_index(drop=True)
    for column in table.columns:
        values = table[column]
        if values.dtype == object and pd.to_numeric(values, errors="coerce").notna().mean() > 0.5:
            table[column] = pd.to_numeric(values, errors="coerce")
    return table.astype({"event": np.int64})
