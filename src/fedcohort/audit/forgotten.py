"""The folder that `fedcohort forget` writes: models, a page, and what the sites keep.

    models/ARM/      model.safetensors, model.json and card.md, as of a run; `predict` reads it
    forget.json      {"schema": 1, "study", "run", "forgotten", "site", "when", "models": [{"arm",
                     "method", "model", "sites", "how", "why", "rounds", "seconds",
                     "rounds_of_new_fit", "seconds_of_new_fit", "difference", "divergence",
                     "membership"}]}; see `forgetting`. Over a network also "network", the study's
                     hash, and who withdrew, when and why; "run" is then a hash, too
    forget.md        the same in words
    ledger.jsonl     what left the other sites
    kept/ARM/        what each of them keeps, so that a further site can be forgotten
    study.yaml       the study that was run

No number of the site alone is in it, and none of the coefficients before.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcohort.audit.forgetting import Made, Origin, Source
from fedcohort.audit.rebuilt import rebuild
from fedcohort.protocol import DataError, StudyError, registry
from fedcohort.report import words
from fedcohort.study.results import forgetting, saved
from fedcohort.study.run.pieces import FINAL, tagged
from fedcohort.version import VERSION

FILE = "forget.json"
#: What a command and a page say of the old model.
BOTH = (
    "The old model still has this hospital's data in it. Whoever has the old and the new model can "
    "subtract one from the other, and learn what the hospital added. Delete the old run, {}, when "
    "nobody needs it any more."
)


def opened(folder: Path, data: Path | None = None) -> Source:
    """Return a finished run, or a folder of this module, to forget a site in.

    Parameters
    ----------
    data : folder of the study's relative paths, see `rebuilt.rebuild`.

    Raises
    ------
    DataError : there is neither, a file is damaged, or the run was deployed.
    """
    path = folder / FILE
    if deployed(folder):
        raise DataError(
            f"{folder}: this run was deployed, and its rows are at the sites. Forget over its "
            f"network: --runtime flare --network KIT, with the lead's kit."
        )
    if not path.is_file():
        return Source(folder, rebuild(folder, data))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        first, gone = folder / str(content["run"]), tuple(map(str, content["forgotten"]))
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: this file is damaged. Forget again in the first run.") from None
    return Source(folder, rebuild(first, data), gone)


def deployed(folder: Path) -> dict[str, Any]:
    """Return what a folder says of its network; {} of a run, or a forgetting, in one process."""
    for name in (FILE, "results.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return json.loads((folder / name).read_text(encoding="utf-8")).get("network") or {}
    return {}


def check_folder(out: Path) -> None:
    """Refuse a folder that is not empty.

    Raises
    ------
    StudyError : it has files, or is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StudyError(f"--out {out}: it exists and is not empty. Name another folder.")


def write(
    source: Origin, site: str, made: Sequence[Made], out: Path,
    network: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the folder; return the content of forget.json.

    Parameters
    ----------
    network : of a forgetting over a network, what forget.json says of it, with "of", the hash of
        the study that was run.

    Raises
    ------
    StudyError : it cannot be written there.
    """
    content: dict[str, Any] = {
        "schema": 1,
        "study": source.run.plan.study,
        "run": str(network["of"]) if network else _relative(source.run.folder, out),
        "forgotten": [*source.gone, site],
        "site": site,
        "when": datetime.date.today().isoformat(),
        "fedcohort": VERSION,
        **({"network": dict(network)} if network else {}),
        "models": [one.row for one in made],
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.run.folder / "study.yaml", out / "study.yaml")
        for one in made:
            _write_model(source, content, one, out)
        with (out / "ledger.jsonl").open("w", encoding="utf-8") as file:
            for one in made:
                file.writelines(_ledger(source, one))
        (out / "forget.md").write_text(page(source, content), encoding="utf-8")
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        (out / FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        where = error.filename or out
        raise StudyError(f"--out {where}: cannot write there ({error.strerror}).") from None
    return content


def _relative(folder: Path, out: Path) -> str:
    return Path(os.path.relpath(folder.resolve(), out.resolve())).as_posix()


def _write_model(source: Origin, content: Mapping[str, Any], one: Made, out: Path) -> None:
    notes = {k: v for k, v in one.old.notes.items() if k != "times"}
    notes |= {"without": list(content["forgotten"])}
    parts = saved.Saved.of(
        one.arm.method, one.run.model, one.run.design, source.run.dictionary, notes
    )
    folder = out / "models" / one.name
    saved.write(folder, parts)
    (folder / "card.md").write_text(card(source, content, one), encoding="utf-8")
    if one.run.kept:
        forgetting.keep(out, one.name, one.run.kept)


def _ledger(source: Origin, one: Made) -> list[str]:
    repeat = FINAL if one.old.notes.get("final") else 0
    scenario = source.run.plan.scenarios[0].name
    return tagged(one.run.ledger.lines, one.arm.name, scenario, repeat, {0: "forget"})


# words --------------------------------------------------------------------------------


def card(source: Origin, content: Mapping[str, Any], one: Made) -> str:
    """Return the model card of a model without the forgotten sites."""
    plan, method = source.run.plan, registry.find(one.arm.method)
    settings = source.run.settings(one.arm)
    return "\n".join(
        [
            f"# {one.arm.title}: {plan.study}, without {words.listed(content['forgotten'])}",
            "",
            f"- Method: {method.title} (`{method.name}`). Source: {method.paper}",
            f"- Trained on: {source.run.results['data']['source']}, the rows of "
            f"{words.listed(one.row['sites'])}"
            + (", all" if one.old.notes.get("final") else ", those of the first repeat's training"),
            f"- Withdrawn: {words.listed(content['forgotten'])}; {content['when']}",
            f"- Seed: {plan.seed}; fedcohort {VERSION}",
            "",
            *(f"- {text}" for text in lines(one.row)),
            "",
            "How well this model predicts was not measured; the report of the run is about the "
            "model of all sites. Evaluate it before it is used. It is no medical device.",
            "",
            "## What left the sites",
            "",
            method.revealed(method.configure(settings), plan.privacy.dp),
            "",
            "## Settings",
            "",
            *(f"- {k}: {words.value(v)}" for k, v in settings.items()),
            "",
        ]
    )


def page(source: Origin, content: Mapping[str, Any]) -> str:
    """Return the page about what was forgotten."""
    parts = [
        f"# {content['study']} without {content['site']}",
        "",
        f"On {content['when']} the hospital {content['site']} withdrew. Forgotten before: "
        f"{', '.join(source.gone) or 'none'}.",
    ]
    for row in content["models"]:
        parts += ["", f"## {row['model']}", "", *(f"- {text}" for text in lines(row))]
    return "\n".join([*parts, "", BOTH.format(content["run"]), ""])


def lines(row: Mapping[str, Any]) -> list[str]:
    """Return what was done for one model and how far it is from a new fit, a sentence each."""
    sites = words.some(row["sites"])
    if row["why"]:
        found = [f"Fitted anew to the rows of {sites}, because {row['why']}: exactly without it."]
    else:
        found = [f"Made from what {sites} keep of the fit, in {_spent(row, '')}."]
    if not row["why"] and row["rounds_of_new_fit"] is not None:
        found.append(f"A new fit without the hospital takes {_spent(row, '_of_new_fit')}.")
    if off := row["difference"]:
        found.append(
            f"Predictions differ from the new fit's by {off['after']['mean']:.2g} on average and "
            f"{off['after']['largest']:.2g} at most; those of the old model by "
            f"{off['before']['mean']:.2g} and {off['before']['largest']:.2g} "
            f"({off['unit']}, {off['rows']} {off['of']})."
        )
    if kl := row["divergence"]:
        found.append(
            f"Divergence of its posterior from the new fit's: {kl['after']:.2g} nats; of the old "
            f"model's: {kl['before']:.2g}."
        )
    if attack := row["membership"]:
        known = [("old model", "before"), ("this model", "after"), ("new fit", "new")]
        values = "; ".join(
            f"{name} {attack[k]['value']:.3f} ({attack[k]['low']:.3f} to {attack[k]['high']:.3f})"
            for name, k in known
            if k in attack and not (k == "new" and row["why"])
        )
        found.append(
            f"AUC of an attack that tells the hospital's {attack['rows']} training rows from "
            f"{attack['others']} others: {values}. 0.5 is guessing, if both are alike."
        )
    return found


def _spent(row: Mapping[str, Any], of: str) -> str:
    rounds = row[f"rounds{of}"]
    return f"{rounds} round{'s' * (rounds != 1)} and {row[f'seconds{of}']:.2g} s"
