"""The methods paragraph of a paper about this study, with its citations."""

from __future__ import annotations

from collections.abc import Mapping

from fedcohort.report import hidden_counts, modelling, words
from fedcohort.report.markup import h, p
from fedcohort.report.modelling import penalty_of
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section

_RAND = "Hubert L, Arabie P. Comparing partitions. Journal of Classification 1985; 2: 193–218."
#: What a paper cites for each metric.
METRICS: Mapping[str, str] = {
    "c_index": "Harrell FE, Califf RM, Pryor DB, Lee KL, Rosati RA. Evaluating the yield of "
    "medical tests. JAMA 1982; 247: 2543–2546.",
    "uno_c": "Uno H, Cai T, Pencina MJ, D’Agostino RB, Wei LJ. On the C-statistics for evaluating "
    "overall adequacy of risk prediction procedures with censored survival data. Statistics in "
    "Medicine 2011; 30: 1105–1117.",
    "antolini_c": "Antolini L, Boracchi P, Biganzoli E. A time-dependent discrimination index for "
    "survival data. Statistics in Medicine 2005; 24: 3927–3944.",
    "ibs": "Graf E, Schmoor C, Sauerbrei W, Schumacher M. Assessment and comparison of prognostic "
    "classification schemes for survival data. Statistics in Medicine 1999; 18: 2529–2545.",
    "d_calibration_p": "Haider H, Hoehn B, Davis S, Greiner R. Effective ways to build and "
    "evaluate individual survival distributions. JMLR 2020; 21(85): 1–63.",
    "calibration_slope": "Van Calster B, McLernon DJ, van Smeden M, Wynants L, Steyerberg EW. "
    "Calibration: the Achilles heel of predictive analytics. BMC Medicine 2019; 17: 230.",
    "auc": "Hanley JA, McNeil BJ. The meaning and use of the area under a receiver operating "
    "characteristic (ROC) curve. Radiology 1982; 143: 29–36.",
    "r2": "Steyerberg EW, Vickers AJ, Cook NR, et al. Assessing the performance of prediction "
    "models: a framework for traditional and novel measures. Epidemiology 2010; 21: 128–138.",
    "pcc": "Pearson K. Note on regression and inheritance in the case of two parents. Proceedings "
    "of the Royal Society of London 1895; 58: 240–242.",
    "nrmse": "Nolte D, Bazgir O, Ghosh S, Pal R. Federated learning framework integrating REFINED "
    "CNN and Deep Regression Forests. Bioinformatics Advances 2023; 3: vbad036.",
    "poisson_deviance": "McCullagh P, Nelder JA. Generalized Linear Models. 2nd ed. London: "
    "Chapman and Hall; 1989.",
    "silhouette": "Rousseeuw PJ. Silhouettes: a graphical aid to the interpretation and validation "
    "of cluster analysis. Journal of Computational and Applied Mathematics 1987; 20: 53–65.",
    "calinski_harabasz": "Caliński T, Harabasz J. A dendrite method for cluster analysis. "
    "Communications in Statistics 1974; 3: 1–27.",
    "ari": _RAND,
    "agreement": _RAND,
    "nmi": "Vinh NX, Epps J, Bailey J. Information theoretic measures for clusterings comparison. "
    "JMLR 2010; 11: 2837–2854.",
    "brier": "Brier GW. Verification of forecasts expressed in terms of probability. Monthly "
    "Weather Review 1950; 78: 1–3.",
}
_PAIRED = (
    "Nadeau C, Bengio Y. Inference for the generalization error. Machine Learning 2003; 52: "
    "239–281."
)
_META = (
    "Riley RD, Higgins JPT, Deeks JJ. Interpretation of random effects meta-analyses. BMJ 2011; "
    "342: d549."
)
_ODDS = (
    "Peterson B, Harrell FE. Partial proportional odds models for ordinal response variables. "
    "Applied Statistics 1990; 39: 205–217."
)
_HAZARDS = (
    "Grambsch PM, Therneau TM. Proportional hazards tests and diagnostics based on weighted "
    "residuals. Biometrika 1994; 81: 515–526."
)
_DECISION = (
    "Vickers AJ, Cronin AM, Elkin EB, Gönen M. Extensions to decision curve analysis, a novel "
    "method for evaluating diagnostic tests, prediction models and molecular markers. BMC Medical "
    "Informatics and Decision Making 2008; 8: 53."
)
_GUIDELINE = (
    "Collins GS, Moons KGM, Dhiman P, et al. TRIPOD+AI statement: updated guidance for reporting "
    "clinical prediction models that use regression or machine learning methods. BMJ 2024; 385: "
    "e078378."
)


def section(run: Run) -> Section | None:
    """Return the paragraph and its references, to be copied."""
    if not run.arms:
        return None
    cited: list[str] = []
    parts = (_data(run), _fits(run, cited), _judged(run, cited), _allowed(run))
    text = " ".join(s for s in parts if s)
    if run.kind.predicts:
        cited.append(_GUIDELINE)
        text = f"{text} Reporting follows TRIPOD+AI [{len(cited)}]."
    body = h(
        "div",
        p(text),
        h("ol", (h("li", c) for c in cited), class_="references"),
        class_="paper",
    )
    return Section(
        "paper", "Methods text", "How would a paper put it?",
        "A draft of the methods paragraph, made from the run; read it before you use it.", body,
    )  # fmt: skip


def _allowed(run: Run) -> str:
    """Return ethics number and legal basis of the data, if known."""
    told = run.mapping("governance")
    ethics, basis = told.get("ethics"), told.get("legal_basis")
    said = f"Ethics number: {ethics}." if ethics else ""
    return f"{said} Legal basis: {basis}.".strip() if basis else said


def _cite(cited: list[str], work: str) -> str:
    """Return a reference's number; a new one joins the list."""
    if work not in cited:
        cited.append(work)
    return f"[{cited.index(work) + 1}]"


def _data(run: Run) -> str:
    """Return the patients' origin and the preparation of their data."""
    data = run.mapping("data")
    rows, events = words.number(data.get("rows")), words.number(data.get("events"))
    sites = max((len(run.sites(s)) for s in run.scenarios), default=0)
    parts: list[str] = []
    if rows == rows:
        held = f", {words.count(events)} of whom had the event" if events == events else ""
        natural = bool(run.natural & run.scenarios.keys())
        where = f" of {words.of(sites, 'hospital')}" if natural else ""
        parts.append(f"We analysed {words.of(rows, 'patient')}{where}{held}.")
        if sites and not natural:
            parts.append(f"Their rows were divided among {words.of(sites, 'simulated hospital')}.")
    if entry := run.mapping("outcome").get("entry"):
        parts.append(f"Patients count as at risk from when they came under observation ({entry}).")
    parts.append(
        "Patients’ rows stayed at the hospitals: preprocessing and models were fitted by messages "
        f"of aggregate numbers.{_filled(run)}"
    )
    return " ".join(parts)


def _filled(run: Run) -> str:
    """Return how missing values were filled, by arm where arms differ."""
    ways = modelling.imputed(run.together)
    gaps = hidden_counts.holes(run.mapping("cohort").get("variables") or ()).columns
    if len(ways) > 1 and not run.mapping("preprocess").get("impute") and not gaps:
        return ""
    if len(ways) > 1:
        kept = words.listed(ways.pop("none", []))
        said = [f"for {words.listed(own)} ({words.spaced(how)})" for how, own in ways.items()]
        return (
            f" Missing values were imputed {words.listed(said)}{f', not for {kept}' * bool(kept)}."
        )
    impute = run.mapping("preprocess").get("impute") or ""
    if impute == "multiple":
        impute = next(iter(ways), impute)
    if impute == "none":
        return " Missing values were not imputed."
    return f" Missing values were imputed ({words.spaced(str(impute))})." * bool(impute)


def _fits(run: Run, cited: list[str]) -> str:
    """Return the fitted models and the software."""
    version = run.mapping("versions").get("fedcohort")
    named = [_model(run, a, cited) for a in run.together]
    fitted = f"We fitted {words.listed(named)}." if named else ""
    bounds = [a for a in (run.lower, run.upper) if a is not None]
    between = (
        " As a lower bound each hospital fitted its own rows, as an upper bound all rows were "
        "pooled."
        if len(bounds) == 2
        else " As a lower bound each hospital fitted its own rows."
        if run.deployed and bounds
        else ""
    )
    tuned = " Settings were chosen on training rows only." if run.rows("tuning") else ""
    checked = (
        f" Proportional hazards were tested {_cite(cited, _HAZARDS)}."
        if run.rows("proportional_hazards")
        else ""
    )
    if run.rows("proportional_odds"):
        checked += f" Proportional odds were tested {_cite(cited, _ODDS)}."
    checked += _kept(run)
    software = f" Computations used fedcohort {version}." if version else ""
    return f"{fitted}{between}{tuned}{checked}{software}".strip()


def _kept(run: Run) -> str:
    """Return the rows of the given coefficients and models, and whether they are shrunken."""
    final = [a.title for a in run.together if run.final(a.name) is not None]
    shrunken = [a.title for a in run.together if penalty_of(run.model_rows("coefficients", a.name))]
    effects = any(run.model_rows("coefficients", a.name) for a in run.together)
    told = (
        f" The models that are kept{', and their coefficients,' * effects} "
        "were fitted to all rows; performance "
        "was measured on fits that left rows out."
    ) * bool(final)
    noun = "is" if len(shrunken) == 1 else "are"
    named = words.listed([f"“{title}”" for title in shrunken])
    return told + (
        f" {named} {noun} penalised: coefficients are shrunken towards no effect, and no "
        f"confidence intervals are given for them."
    ) * bool(shrunken)


def _model(run: Run, arm: Arm, cited: list[str]) -> str:
    """Return an arm with its method's citation and particulars."""
    method = "" if arm.method == arm.title else arm.method
    inside = " ".join(x for x in (method, _cite(cited, arm.paper) if arm.paper else "") if x)
    chosen = modelling.tuned(t for t in run.rows("tuning") if t["arm"] == arm.name)
    own = ", ".join(modelling.particulars(arm.settings, chosen))
    if method:
        return f"“{arm.title}” ({inside}{f'; {own}' if own else ''})"
    return f"{arm.title} {inside}".strip() + (f" ({own})" if own else "")


def _judged(run: Run, cited: list[str]) -> str:
    """Return how performance was measured."""
    evaluate = run.mapping("evaluate")
    if "test_fraction" not in evaluate:
        return ""
    named = [
        words.inline(words.metric(m).label)
        + (f" {_cite(cited, METRICS[m])}" if m in METRICS else "")
        for m in run.metrics
    ]
    n = words.number(evaluate.get("repeats"))
    repeats = {1.0: "once", 2.0: "twice"}.get(n, words.of(n, "time"))
    draws = words.number(evaluate.get("draws"))
    drawn = (
        f", with 95 % intervals ({words.count(draws)} bootstrap samples of patients)"
        if draws > 0
        else ", with 95 % intervals over these repeats" * (evaluate.get("intervals") == "repeats")
    )
    drawn += "; so were differences between models, with the same samples for both" * (
        run.compared_by_patients
    )
    paired = (
        f"; differences between models used the corrected resampled t-test {_cite(cited, _PAIRED)}"
        if run.rows("comparisons") and n > 1 and not run.compared_by_patients
        else ""
    )
    slope = run.results.get("task") == "survival" and "calibration_slope" in run.metrics
    grouped = (
        " Groups by predicted risk were compared by Kaplan-Meier curves and log-rank tests."
        if run.rows("risk_groups")
        else ""
    )
    if run.rows("decision"):
        grouped += f" Net benefit was computed by threshold {_cite(cited, _DECISION)}."
    grouped += _of_clusters(run)
    formed = (
        " Metrics were formed from sums over hospitals, without pooling rows"
        + ("; the calibration slope is stratified by hospital" if slope else "")
        + "."
        if run.deployed
        else ""
    )
    centre = (
        f" Heterogeneity between centres was summarised by random-effects meta-analysis "
        f"{_cite(cited, _META)}."
        if run.rows("heterogeneity")
        else ""
    )
    return (
        f"Performance was measured on {words.percent(run.test_fraction)} of the rows, held back at "
        f"random {repeats}, by {words.listed(named)}{drawn}{paired}.{formed}{grouped}{centre}"
    )


def _of_clusters(run: Run) -> str:
    """Return how clusters were described."""
    tested = " Survival by cluster was compared by Kaplan-Meier curves and log-rank tests."
    set_apart = (
        " Features of each cluster were set against those of all other patients by odds ratios and "
        "standardised mean differences; p-values were adjusted for the false discovery rate and "
        "describe the clusters, which were made from these features."
    )
    return tested * bool(run.rows("cluster_log_rank")) + set_apart * bool(
        run.rows("cluster_features")
    )
