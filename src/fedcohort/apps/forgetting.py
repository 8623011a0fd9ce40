"""`fedcohort forget`: the models of a run without one hospital, in a new folder."""

from __future__ import annotations

from pathlib import Path

import typer

from fedcohort.audit import forgetting, forgotten
from fedcohort.protocol.errors import NotSupported
from fedcohort.study.results.own_models import folder_of


def check_network(network: Path | None) -> None:
    """Refuse a network: a hospital is forgotten there by a new study.

    Raises
    ------
    NotSupported : there is one.
    """
    if network is not None:
        raise NotSupported(
            "forget does not work over a network yet. Submit the study under a new name; the "
            "hospital's steward refuses it ('fedcohort node refuse HASH --reason withdrawn'), and "
            "with a quorum below 1 it runs without the hospital."
        )


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
    for row in content["models"]:
        typer.echo(f"{row['model']}:")
        for text in forgotten.lines(row):
            typer.echo(f"  {text}")
    typer.echo(forgotten.BOTH.format(source.run.folder))
    return place
