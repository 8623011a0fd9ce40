"""What a kit's README.txt says to the person who receives it."""

from __future__ import annotations

from fedcohort.secure.certificates import Certificate

_KEEP = """\
Keep secret
  key.pem proves that a message comes from you. Give it to nobody, not even to the coordinator; do
  not mail it unencrypted; keep its mode 0600 (readable by one user alone). A site's
  identity.pem, which signs masked sums, is as secret as that. The other files
  are not secret. If key.pem was seen by others, tell whoever sent you this folder at once:
  they take the certificate back and make you a new one.

Valid
  from {since:%Y-%m-%d} until {until:%Y-%m-%d} (UTC). Ask for a new certificate before that day.
  Fingerprint (SHA-256) of your certificate, to compare on the telephone:
  {fingerprint}
"""

_DOES = {
    "site": """\
This folder lets your hospital take part in the network "{network}" under the name "{name}".
Your data stay with you: a node on your computer answers the calls of studies that your
data steward or your policy has approved, and it only ever sends what its ledger lists.

Start
  1. Install fedcohort in the version that the network uses.
  2. Write node.toml beside your data: where they are, and what studies may ask of them.
       [data]
       source = "patients.csv"
       [policy]
       methods = ["cox"]         # or "all"
       columns = "all"           # or a list
       submitters = ["lead"]     # who may submit studies
       approval = "steward"      # or "automatic"
  3. fedcohort node start THIS-FOLDER --config node.toml

Connections
  One outgoing TLS connection to {address}. No port of yours is opened.
""",
    "coordinator": """\
This folder is the coordinator of the network "{network}": the process that sites and study
leads connect to. It sees what the sites' ledgers list, and never a record.

Start
  fedcohort coordinator start THIS-FOLDER

Connections
  Sites and leads must reach {address}; the coordinator listens on that port
  alone. Where that is no address of its own computer (a router, a public name): --listen HOST.
""",
    "lead": """\
This folder lets "{name}" submit studies to the network "{network}". Studies are signed with
its key: whoever has it can ask the hospitals in your name.

Run a study
  fedcohort run STUDY.yaml --runtime {engine} --network THIS-FOLDER

Connections
  One outgoing TLS connection to {address}.
""",
    "steward": """\
This folder names the data steward of the site "{organisation}" in the network "{network}". At
the site's node the steward sees what each study asks for, and approves or refuses it.

Decide
  fedcohort node studies --node SITE-KIT
  fedcohort node studies HASH --node SITE-KIT --check
  fedcohort node approve HASH --node SITE-KIT --kit THIS-FOLDER
  fedcohort node refuse HASH --reason "WHY" --node SITE-KIT --kit THIS-FOLDER
  fedcohort node export HASH --node SITE-KIT      (a page to print and sign)
  fedcohort node history --node SITE-KIT          (all decisions)
SITE-KIT is the folder with which the site's node was started.
""",
}


def text(party: Certificate, address: str, network: str, engine: str = "flare") -> str:
    """Return README.txt of a party's kit."""
    head = f"{party.name} in the network {network}"
    body = _DOES[party.role].format(
        name=party.name,
        organisation=party.organisation,
        network=network,
        address=address,
        engine=engine,
    )
    keep = _KEEP.format(since=party.since, until=party.until, fingerprint=party.fingerprint)
    return f"{head}\n{'=' * len(head)}\n\n{body}\n{keep}"
