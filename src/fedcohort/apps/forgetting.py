"""`fedcohort forget`: the models of a run without one hospital, in a new folder.

Over a network the lead submits a study that forgets (`study.file.forget`): the text of the study
that was run, with the hospital's signed withdrawal. The withdrawal comes from the hospital's node
through the coordinator, or from a file. The sites that stay approve that study like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from fedcohort.audit import forgetting, forgotten
from fedcohort.network.coordinator.lead import PATIENCE, Office
from fedcohort.network.kits import Kit
from fedcohort.network.state.withdrawals import Withdrawal
from fedcohort.network.study_offer import offer
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.file.forget import FORGET, without_key
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.own_models import folder_of


def forget(
    folder: Path,
    site: str,
    out: Path | None,
    *,
    arm: str | None,
    rounds: int | None,
    compare: bool,
    data: Path | None,
) -> Path:
    """Write the folder of the models without a site, and print what was done.

    Raises
    ------
    InputError : the folder, the site or the arm is wrong.
    FedcohortError : no model can be fitted without the site.
    """
    place = out or folder.with_name(f"{folder.resolve().name}-without-{folder_of(site)}")
    forgotten.check_folder(place)
    source = forgotten.opened(folder, data)
    made = forgetting.forget(
        source,
        site,
        arm=arm,
        rounds=rounds,
        compare=compare,
        tell=lambda name: typer.echo(f"{name} …", err=True),
    )
    content = forgotten.write(source, site, made, place)
    _tell(content, str(source.run.folder))
    return place


def _tell(content: Mapping[str, Any], run: str) -> None:
    for row in content["models"]:
        typer.echo(f"{row['model']}:")
        for text in forgotten.lines(row):
            typer.echo(f"  {text}")
    typer.echo(forgotten.BOTH.format(run))


# over a network -------------------------------------------------------------------------


def forget_over(
    folder: Path,
    site: str,
    out: Path | None,
    *,
    network: Path,
    runtime: str,
    withdrawals: Iterable[Path] = (),
    arm: str | None = None,
    rounds: int | None = None,
    compare: bool = True,
    wait: float | None = None,
    timeout: float | None = None,
    resume: bool = False,
    command: str = "",
) -> Path:
    """Let the network of a run make its models without a site; fetch and tell them.

    Parameters
    ----------
    network : the lead's kit. runtime : the network's engine.
    withdrawals : files that the site's steward gave; without, the site's node is asked.
    wait, timeout, resume : as of `deploying.run`.

    Raises
    ------
    InputError : the folder, the site, the kit or a file is wrong, or the site has not withdrawn.
    FedcohortError : too few sites stay, or they did not agree; or the coordinator is away.
    """
    from fedcohort.apps import deploying

    kit = Kit.read(network)
    deploying.check_kit(kit, runtime)
    told = forgotten.deployed(folder)
    if not told:
        raise InputError(f"{folder}: this is no run over a network. Leave --network out.")
    place = out or folder.with_name(f"{folder.resolve().name}-without-{folder_of(site)}")
    first = Terms.of(folder / "study.yaml")
    if first.hash != told["hash"]:
        raise InputError(
            f"{folder / 'study.yaml'}: this is not the study that was run (its hash differs). Give "
            f"the folder as it was fetched."
        )
    earlier = first.plan.forget
    gone = () if earlier is None else earlier.sites
    forgetting.check_site(f"{folder}", {*told["sites"], *gone}, gone, site)
    with deploying.reached(kit) as office:
        one = _withdrawal(office, kit, first.hash, site, withdrawals)
        records = [*(() if earlier is None else earlier.withdrawals), one.record()]
        asked: dict[str, Any] = {"of": first.hash, "withdrawals": [dict(r) for r in records]}
        asked |= {"arm": arm} if arm else {}
        asked |= {"rounds": rounds} if rounds else {}
        asked |= {} if compare else {"compare": False}
        content = without_key(first.content)
        data = content.pop("data")  # which comes last, as in every study that is sent
        terms = Terms({**content, FORGET: asked, "data": data}, first.dictionary_content)
        terms.check()
        status = deploying.fetched(
            office, kit, offer(terms.to_json(), kit), place, wait=wait, timeout=timeout,
            resume=resume, command=command,
        )  # fmt: skip
    for name, why in sorted(status.absent.items()):
        typer.echo(f"without {name}: {why}", err=True)
    made = json.loads((place / forgotten.FILE).read_text(encoding="utf-8"))
    _tell(made, f"{folder}")
    return place


def _withdrawal(
    office: Office, kit: Kit, study: str, site: str, files: Iterable[Path]
) -> Withdrawal:
    """Return a site's withdrawal, verified, from a file or from its node.

    Raises
    ------
    InputError : there is none.
    """
    found = [one for one in map(_read, files) if one.site == site]
    if not found:
        _, meta = office.insist("withdrawal", loss=PATIENCE, run=study, site=site)
        record, why = meta.get("record"), str(meta.get("why") or "it has not withdrawn")
        if not isinstance(record, dict) or not record:
            raise InputError(
                f"--site {site}: {why.rstrip('.')}. Its data steward withdraws there, with "
                f"'fedcohort node withdraw {study[:12]} --reason …'; if its node cannot be "
                f"reached, give the file that this command writes: --withdrawal FILE."
            )
        found = [Withdrawal.of(record)]
    found[0].verify(kit.trust())
    return found[0]


def _read(path: Path) -> Withdrawal:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Withdrawal.of(content if isinstance(content, dict) else {})
    except (OSError, ValueError, Refused):
        raise InputError(
            f"--withdrawal {path}: expected the file that 'fedcohort node withdraw' wrote."
        ) from None
