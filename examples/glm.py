"""Falls of patients per year of stay, over five hospitals: Poisson regression with an offset.

python examples/glm.py
"""

import numpy as np
import pandas as pd

import fedcohort as fc


def patients(n: int = 1200) -> pd.DataFrame:
    """Return simulated patients, whose rate of falls grows by half with each ten years of age."""
    rng = np.random.default_rng(1)
    age, drugs = rng.normal(75, 8, n), rng.poisson(3, n)
    years = rng.uniform(0.2, 4, n)
    rate = 0.3 * np.exp(np.log(1.5) * (age - 75) / 10 + 0.1 * drugs)
    return pd.DataFrame(
        {
            "age": age, "drugs": drugs, "log_years": np.log(years),
            "falls": rng.poisson(rate * years), "hospital": rng.choice(list("ABCDE"), n),
        }
    )  # fmt: skip


def main() -> None:
    table = patients()
    fed = fc.simulate(table, sites="hospital", outcome=fc.Count("falls"))

    fit = fc.fit("glm", fed, offset="log_years")  # a count: Poisson, with the logarithm as its link
    columns = ["covariate", "rate_ratio", "rr_low", "rr_high", "p"]
    print(fit.summary[columns].round(4).to_string(index=False))
    m = fit.model
    print(f"\n{m.rounds} rounds; deviance {m.deviance:.1f}, without covariates "
          f"{m.null_deviance:.1f}; overdispersion {m.pearson / m.df_residual:.2f}")  # fmt: skip
    print("\nfalls expected of the first three patients:", fit.predict(table[:3]).round(2))


if __name__ == "__main__":
    main()
