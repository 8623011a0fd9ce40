"""Handwritten digits at four sites, grouped without their labels, and drawn anew from the groups.

python examples/deep_clustering.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

import fedcohort as fc


def main() -> None:
    digits = load_digits(as_frame=True)
    pixels, digit = digits.data.loc[:, digits.data.max() > 2] / 16, digits.target.to_numpy()
    fed = fc.simulate(pixels.assign(site=np.arange(len(pixels)) % 4), sites="site")

    fit = fc.fit(
        "deep_clustering", fed, n_clusters=10, architecture=(256, 10), rounds=20, batch_size=32,
        learning_rate=0.003, cluster_batch_size=32, gamma=0.1, scale="none",
    )  # fmt: skip
    print(fit.summary.round(3).to_string(index=False))

    near = fit.predict(pixels)
    most = [np.bincount(digit[near == j]).argmax() for j in range(len(fit.summary))]
    print(f"\nthe commonest digit of each cluster: {[int(d) for d in most]}")
    print(f"adjusted Rand index against the digits: {adjusted_rand_score(digit, near):.2f}")
    sure = fit.memberships(pixels).max(axis=1)
    print(f"rows with more than half of their membership in one cluster: {(sure > 0.5).mean():.0%}")

    drawn = fit.sample(1, seed=3).iloc[0]
    row = drawn.reindex(digits.data.columns, fill_value=0.0).to_numpy().reshape(8, 8)
    print("\na digit that nobody wrote:")
    print("\n".join("".join(" .:-=+*#%@"[min(int(v * 10), 9)] * 2 for v in line) for line in row))


if __name__ == "__main__":
    main()
