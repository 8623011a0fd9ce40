"""One regression by two solvers, and a support vector machine, over three hospitals by ADMM.

python examples/admm.py
"""

from pathlib import Path

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition


def main() -> None:
    masses = load("sample:breast_cancer", Path()).frames
    table = masses[["mean texture", "mean area", "mean concave points", "target"]]
    outcome = fc.Binary("target")  # 1 is benign
    hospitals = partition(table, "unbalanced", 3, seed=1, outcome=outcome)
    fed = fc.simulate(hospitals, outcome=outcome)

    # logistic regression by ADMM and by Newton's method: the same optimum
    admm = fc.fit("logistic", fed, solver="admm", penalty=0.01, scale="standard")
    exact = fc.fit("logistic", fed, solver="exact", penalty=0.01, scale="standard")
    difference = abs(admm.model.coefficients - exact.model.coefficients).max()
    print(f"ADMM and Newton differ by {difference:.0e}: {admm.run.rounds} rounds, not "
          f"{exact.run.rounds}")  # fmt: skip
    print(admm.history[["round", "objective", "primal", "dual", "rho"]].tail(3).to_string())

    svm = fc.fit("svm", fed, penalty=0.1, scale="standard")
    print(f"\nsupport vector machine, {svm.model.n_iter_} rounds")
    print("coefficients", svm.model.coef_.round(3), "intercept", round(svm.model.intercept_, 3))
    print("probability of a benign mass, of the first three:", svm.predict(table[:3]).round(3))


if __name__ == "__main__":
    main()
