"""Which measurements tell how diabetes progresses: the lasso over eight hospitals.

python examples/lasso.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    source = load("sample:diabetes", Path())
    hospitals = partition(source.frames, "unbalanced", 8, seed=1, outcome=source.outcome)
    fed = fc.simulate(hospitals, outcome=source.outcome, dictionary=source.dictionary)

    # the penalty is chosen by leaving groups of hospitals out
    fit = fc.fit("lasso", fed, scale="standard", rule="1se")
    print(fit.summary.round(2).to_string(index=False))
    path = fit.model.path_
    print(f"\npenalty {path.penalty:.3g}, chosen by {path.n_folds} folds of hospitals")
    print(fit.history.iloc[::20].round(1).to_string(index=False))

    # the same by ADMM, where no cross-products leave a hospital
    admm = fc.fit("lasso", fed, scale="standard", solver="admm", penalty=path.penalty)
    above = admm.model.objective / fit.model.objective - 1
    print(f"\nADMM: objective {above:.0e} above, relatively, after {admm.model.n_iter_} rounds")

    # least squares with standard errors, in one round
    ols = fc.fit("ridge", fed)
    columns = ["covariate", "coefficient", "low", "high", "p"]
    print(f"\n{ols.summary[columns].round(4).to_string(index=False)}")
    print(f"R² {ols.model.r2:.3f}, F {ols.model.f_test[0]:.1f}, in {ols.run.rounds} round")


if __name__ == "__main__":
    main()
