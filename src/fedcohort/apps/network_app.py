"""`fedcohort network`: a network and its kits, more parties, new and revoked certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedcohort.network.kits import Kit, Network
    from fedcohort.secure.certificates import Certificate

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Networks: certificates and start-up kits."
)

#: Days before its end at which a certificate is marked for renewal.
SOON = 30

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Folder = Annotated[Path, typer.Argument(metavar="NAME", help="The network's folder.")]
Party = Annotated[str, typer.Argument(help="A site, person or the coordinator, by its name.")]
Days = Annotated[int | None, typer.Option(help="Days for which a certificate is good.")]


@app.command()
def new(
    name: Annotated[Path, typer.Argument(help="The network's name; a folder of it is made.")],
    sites: Annotated[str, typer.Option(help="Names of the sites, such as a,b,c.")],
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where sites reach the coordinator; 127.0.0.1:8102 by default.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="Engine: flare or flower.")] = "flare",
    leads: Annotated[str, typer.Option(help="Names of those who submit studies.")] = "lead",
    days: Days = None,
    debug: Debug = False,
) -> None:
    """Make a network: its authority, and a kit for each site, the coordinator and each person."""
    from fedcohort.network import kits
    from fedcohort.secure import certificates

    made = kits.Network.new(
        name,
        sites=_names(sites),
        address=kits.ADDRESS if address is None else address,
        engine=engine,
        leads=_names(leads),
        days=certificates.DAYS if days is None else days,
    )
    _table(made)
    typer.echo(f"Kits: {made.folder}/coordinator, {made.folder}/sites, {made.folder}/people.")
    typer.echo("Give each party its own kit; in it, README.txt says what to do. Nobody else may")
    typer.echo(f"see its key.pem, and {made.folder}/authority stays with you.")
    if address is None:
        typer.echo(f"At {kits.ADDRESS} parties meet on this computer alone; see --address.")


@app.command()
def add(
    name: Folder,
    site: Annotated[str | None, typer.Option(help="Name of a new site.")] = None,
    person: Annotated[str | None, typer.Option(help="Name of a new study lead.")] = None,
    debug: Debug = False,
) -> None:
    """Add a site, with its data steward, or a study lead to a network."""
    from fedcohort.network.kits import COORDINATOR, Network
    from fedcohort.protocol.errors import StudyError

    if (site is None) == (person is None):
        raise StudyError("name what to add: either --site or --person.")
    found = Network.open(name)
    if person is not None:
        typer.echo(f"made: {found.add_person(person)}")
        return
    made = found.add_site(str(site))
    typer.echo(f"made: {made}")
    typer.echo(f"made: {found.kit(f'steward-{site}')}")
    changed = found.folder / COORDINATOR
    typer.echo(f"The coordinator learns of the new site from {changed}:")
    typer.echo("if its kit was moved, bring it the new kit.toml; then start it again.")


@app.command()
def renew(name: Folder, party: Party, days: Days = None, debug: Debug = False) -> None:
    """Give a party a new key and certificate, for instance before the old one expires."""
    from fedcohort.network.kits import Network
    from fedcohort.secure.certificates import Certificate

    found = Network.open(name)
    kit = found.renew(party, days=days)
    made = Certificate.parse((kit / "cert.pem").read_bytes())
    typer.echo(f"made: {kit / 'cert.pem'} and key.pem, good until {made.until:%Y-%m-%d}")
    typer.echo(f"fingerprint: {made.fingerprint}")
    typer.echo("Put both files in the party's kit, and start it again. The old certificate stays")
    typer.echo(f"good until it ends; if it was lost: fedcohort network revoke {name} {party} --old")


@app.command()
def revoke(
    name: Folder,
    party: Party,
    old: Annotated[
        bool, typer.Option("--old", help="Revoke all certificates except the newest.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Take back a party's certificates, in all kits of this folder."""
    from fedcohort.network.kits import Network

    marks = Network.open(name).revoke(party, older=old)
    if not marks:
        typer.echo(f"{party}: there is no certificate left to take back.")
        return
    typer.echo("Taken back. Kits in this folder know it. Where a kit was handed out, add to")
    typer.echo("'revoked' in its kit.toml, the coordinator's first, and start it again:")
    for mark in marks:
        typer.echo(f"  {mark}")


@app.command()
def show(
    name: Annotated[Path, typer.Argument(metavar="NAME|KIT", help="A network, or one kit.")],
    debug: Debug = False,
) -> None:
    """Show who is in a network, in which role, until when, with fingerprints to compare."""
    from fedcohort.network.kits import Kit, Network

    if (name / "authority").is_dir():
        _table(Network.open(name))
        return
    _show_kit(Kit.open(name))


def _show_kit(kit: Kit) -> None:
    """Print a kit's facts; exit with 1 if it cannot be used."""
    from fedcohort.protocol.errors import Refused
    from fedcohort.secure.certificates import Certificate

    try:
        found = Certificate.parse(kit.certificate.read_bytes())
        root = Certificate.parse(kit.root.read_bytes())
    except Refused as error:
        raise Refused(error.code, f"{kit.folder}: {error}") from None
    rows = {
        "network": f"{kit.network}, engine {kit.engine}, coordinator at {kit.address}",
        "party": f"{kit.name}, role {kit.role}, organisation {kit.organisation}",
        "sites": ", ".join(kit.sites),
        "valid": f"{found.since:%Y-%m-%d} to {found.until:%Y-%m-%d} (UTC)",
        "fingerprint": found.fingerprint,
        "authority": root.fingerprint,
    }
    for label, value in rows.items():
        typer.echo(f"{label:<12} {value}")
    kit.check()


def _table(network: Network) -> None:
    """Print all parties of a network."""
    taken_back = network.revoked()
    parties = network.parties()
    wide = max(len(party.name) for party in parties)
    for party in parties:
        typer.echo(
            f"{party.name:<{wide}}  {party.role:<11}  until {party.until:%Y-%m-%d}  "
            f"{party.fingerprint}{_remark(party, taken_back)}"
        )
    typer.echo(f"{'authority':<{wide}}  {'':<11}  until {network.root.until:%Y-%m-%d}  "
               f"{network.root.fingerprint}")  # fmt: skip


def _remark(party: Certificate, taken_back: frozenset[str]) -> str:
    """Return a remark on a certificate besides its dates."""
    from fedcohort.secure.certificates import now

    if party.fingerprint in taken_back:
        return "  taken back"
    left = (party.until - now()).days
    return "  expired" if left < 0 else "  renew soon" if left < SOON else ""


def _names(text: str) -> list[str]:
    """Return comma-separated names."""
    return [name for name in (part.strip() for part in text.split(",")) if name]
