"""DeepCox on breast cancer recurrence over four hospitals whose patients differ.

python examples/deepcox.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    gbsg2 = load("sample:gbsg2", Path()).frames
    outcome = fc.Survival("time", "cens")
    train, test = gbsg2[::2], gbsg2[1::2]
    hospitals = partition(train, "by-outcome", 4, seed=1, outcome=outcome)
    fed = fc.simulate(hospitals, outcome=outcome)

    print("share of comparable pairs of new patients that each strategy ranks rightly:")
    for strategy in ("ensemble", "sequential", "fedavg", "exact"):
        fit = fc.fit("deepcox", fed, strategy=strategy)
        print(f"  {strategy:10} {concordance(fit.predict(test), test):.3f}")

    print("\nprobability of no recurrence after 1, 3, 5 years, of the first three of them:")
    print(fit.predict_survival(test[:3], [365, 1096, 1826]).round(3))


def concordance(risk, frame) -> float:
    """Harrell's C: of the pairs in which one is seen to recur first, the share ranked so."""
    time, event = frame["time"].to_numpy(), frame["cens"].to_numpy(dtype=bool)
    pairs = event[:, None] & (time[:, None] < time[None, :])
    return float((risk[:, None] > risk[None, :])[pairs].mean())


if __name__ == "__main__":
    main()
