"""What a hostile lead, coordinator or intruder may send as a study: refused before it is unpacked.

    python benchmarks/scorecard/hostile_studies.py

Each attempt goes to a running node whose policy approves at once, through the same entry as a real
offer. It counts as refused where the node answers with a refusal, lays nothing on the steward's
desk, opens no table, writes nothing but its log and its ledger, grows by less than 64 MB, and the
interpreter's audit hooks see no code run or made, no process started, nothing unpickled and no file
opened outside the node's folder. The node must answer an honest study afterwards.
"""

from __future__ import annotations

import io
import json
import logging
import pickle
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
from sheet import forget_peak, main, megabytes

from fedcohort.network.kits.make import Kit, Network
from fedcohort.network.study_offer import offer
from fedcohort.protocol.wire import decode, encode
from hospital import Hospital

ITEM = "hostile studies and bundles"
TARGET = "10 of 10 refused before unpacking"
MOST_MB = 64.0

#: Set once code from an attempt has run.
RAN = "FEDCOHORT_HOSTILE_RAN"
CODE = f"__import__('os').environ.__setitem__({RAN!r}, '1')"
Body = Callable[[Hospital], bytes]


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (CODE,)


# attempts ---------------------------------------------------------------------------------


def sent(blob: bytes) -> bytes:
    """Return the request that offers these bytes, as an array, which may hold any."""
    return encode({"offer": np.frombuffer(blob + bytes(-len(blob) % 8), "<u8")}, {"kind": "offer"})


def told(text: str) -> bytes:
    """Return the request that offers this text."""
    return encode({}, {"kind": "offer", "offer": text})


def canonical(value: object) -> str:
    """Return JSON as an offer's must be."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def signed(made: Hospital, text: str) -> bytes:
    """Return the request that offers a text which a true lead of this network signed."""
    kit = Kit.read(made.folder / "net" / "people" / "lead")
    return told(offer(text, kit).to_bytes().decode())


def edited(made: Hospital, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the request that offers the honest study after a change, signed by a true lead."""
    terms = json.loads(made.terms().to_json())
    change(terms)
    return signed(made, canonical(terms))


def bundle(files: dict[str, bytes]) -> bytes:
    """Return a bundle of an app as Flower's is: a zip with a manifest."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def an_app_bundle(made: Hospital) -> bytes:
    return sent(bundle({"app/client.py": CODE.encode(), "pyproject.toml": b"[tool.flwr.app]"}))


def a_bundle_that_unpacks_to_a_gigabyte(made: Hospital) -> bytes:
    return sent(bundle({f"zeros-{i}": bytes(2**28) for i in range(4)}))


def a_bundle_with_paths_outside(made: Hospital) -> bytes:
    return sent(bundle({"../../state/desk/x": b"x", "/tmp/fedcohort-hostile": CODE.encode()}))


def a_pickle(made: Hospital) -> bytes:
    return sent(pickle.dumps(Evil()))


def numpy_objects(made: Hospital) -> bytes:
    file = io.BytesIO()
    np.savez(file, offer=np.array([Evil()], dtype=object))
    return sent(file.getvalue())


def yaml_that_calls(made: Hospital) -> bytes:
    return told(f"study: !!python/object/apply:builtins.eval [{CODE!r}]\n")


def yaml_aliases_that_grow(made: Hospital) -> bytes:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    return told("\n".join(rows))


def signed_yaml_instead_of_terms(made: Hospital) -> bytes:
    return signed(made, f"study: !!python/object/apply:builtins.eval [{CODE!r}]\n")


def a_wrong_signature(made: Hospital) -> bytes:
    says = json.loads(made.signed().to_bytes())
    says["signature"] = says["signature"][:-2] + f"{int(says['signature'][-2:], 16) ^ 1:02x}"
    return told(canonical(says))


def a_changed_text_under_the_old_hash(made: Hospital) -> bytes:
    says = json.loads(made.signed().to_bytes())
    says["terms"] = says["terms"].replace('"min_cell":5', '"min_cell":1')
    return told(canonical(says))


def a_changed_text_under_a_new_hash(made: Hospital) -> bytes:
    from hashlib import sha256

    says = json.loads(made.signed().to_bytes())
    says["terms"] = says["terms"].replace('"min_cell":5', '"min_cell":6')
    says["hash"] = sha256(says["terms"].encode()).hexdigest()
    return told(canonical(says))


def a_lead_of_another_network(made: Hospital) -> bytes:
    other = Network.new(made.folder / "other", sites=["north", "south"], leads=["lead"])
    kit = Kit.read(other.kit("lead"))
    return told(offer(made.terms().to_json(), kit).to_bytes().decode())


def a_site_that_signs_as_a_lead(made: Hospital) -> bytes:
    says = json.loads(made.signed().to_bytes())
    kit = Kit.read(made.folder / "net" / "sites" / "south")
    says["certificate"], says["lead"] = kit.certificate.read_text(), "south"
    bare = {k: v for k, v in says.items() if k != "signature"}
    text = b"fedcohort offer 1\0" + canonical(bare).encode()
    return told(canonical({**says, "signature": kit.private_key().sign(text).hex()}))


def ten_megabytes(made: Hospital) -> bytes:
    return sent(b"{" + b" " * (10 * 2**20))


def nested_a_hundred_thousand_deep(made: Hospital) -> bytes:
    return told("[" * 100_000)


def signed_and_nested_deeply(made: Hospital) -> bytes:
    return signed(made, '{"content":' + "[" * 50_000 + "]" * 50_000 + "}")


def keys_that_stand_twice(made: Hospital) -> bytes:
    text = made.signed().to_bytes().decode()
    return told('{"lead":"anna",' + text[1:])


def keys_that_carry_code(made: Hospital) -> bytes:
    return edited(made, lambda t: t["content"].update({"code": CODE, "hooks": [CODE]}))


def a_method_that_is_a_module(made: Hospital) -> bytes:
    return edited(made, lambda t: t["content"]["arms"][0].update(method="os:system"))


def an_option_that_is_code(made: Hospital) -> bytes:
    return edited(made, lambda t: t["content"]["arms"][0].update(ties=f"{{{{{CODE}}}}}"))


def a_name_that_is_a_path(made: Hospital) -> bytes:
    return edited(made, lambda t: t["content"].update(study="../../../etc/cron.d/x"))


def more_terms_beside_the_study(made: Hospital) -> bytes:
    return edited(made, lambda t: t.update(setup={"run": CODE}))


def a_link_in_place_of_the_desk_s_study(made: Hospital) -> bytes:
    """A call of an honest study whose text on the desk is, meanwhile, a link to a file."""
    from hospital import request

    run = made.approved()
    made.node.close()
    place = made.state / "desk" / run / "offer"
    if not place.exists():  # wherever the desk keeps it
        place = next(p for p in made.state.rglob("offer") if p.parent.name == run)
    place.unlink()
    place.symlink_to(made.table)
    made.restart()
    return request(run)


ATTEMPTS: tuple[Body, ...] = (
    an_app_bundle, a_bundle_that_unpacks_to_a_gigabyte, a_bundle_with_paths_outside, a_pickle,
    numpy_objects, yaml_that_calls, yaml_aliases_that_grow, signed_yaml_instead_of_terms,
    a_wrong_signature, a_changed_text_under_the_old_hash, a_changed_text_under_a_new_hash,
    a_lead_of_another_network, a_site_that_signs_as_a_lead, ten_megabytes,
    nested_a_hundred_thousand_deep, signed_and_nested_deeply, keys_that_stand_twice,
    keys_that_carry_code, a_method_that_is_a_module, an_option_that_is_code, a_name_that_is_a_path,
    more_terms_beside_the_study, a_link_in_place_of_the_desk_s_study,
)  # fmt: skip

# what a node does meanwhile ---------------------------------------------------------------

#: Events of the interpreter that no refused study may cause.
_NEVER = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class",
    "marshal.loads", "code.__new__", "exec", "compile", "shutil.unpack_archive", "ctypes.dlopen",
)  # fmt: skip
#: Parts of Python that compile what stands in installed modules: annotations.
_OWN = ("typing.py", "dataclasses.py")
_seen: list[str] | None = None
_inside: tuple[str, ...] = ()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in _NEVER:
        caller = sys._getframe(1).f_code.co_filename
        if event not in ("exec", "compile") or not caller.endswith(_OWN):
            _seen.append(event)
    elif event == "open":
        path, mode = str(arguments[0]), str(arguments[1])
        installed = mode in ("r", "rb") and path.startswith((sys.prefix, sys.base_prefix))
        if not path.startswith(_inside) and not installed:
            _seen.append(f"open of {Path(path).name!r} ({mode})")


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """Yield a list of what happens in this process that must not."""
    global _seen, _inside
    _seen, _inside = [], (str(folder),)
    try:
        yield _seen
    finally:
        _seen = None


def files(made: Hospital) -> dict[str, bytes]:
    """Return the node's files but its log and ledger, which every refusal goes to."""
    return {
        str(p.relative_to(made.state)): p.read_bytes()
        for p in sorted(made.state.rglob("*"))
        if p.is_file() and p.name not in ("log.txt", "ledger.jsonl")
    }


def tried(made: Hospital, attempt: Body) -> str:
    """Let one attempt happen; return what is wrong with how it ended, an empty text if nothing."""
    import os

    body = attempt(made)
    opened: list[str] = []
    studies = made.node._studies
    table = studies.table
    studies.table = lambda *a: opened.append("the table was opened") or table(*a)  # type: ignore[method-assign]
    before, start = files(made), megabytes("VmRSS")
    forget_peak()
    with watched(made.folder) as seen:
        reply = made.node.handle(made.coordinator, body)
    grown = megabytes("VmHWM") - start
    del studies.table
    meta = decode(reply)[1]
    refused = meta.get("state") == "refused" or (meta["kind"], meta.get("code")) == (
        "error", "Refused",
    )  # fmt: skip
    wrong = [*seen, *opened]
    wrong += [] if refused else [f"answered by {meta}"]
    wrong += [] if files(made) == before else ["files changed"]
    wrong += [] if grown < MOST_MB else [f"memory grew by {grown:.0f} MB"]
    wrong += ["its code ran"] if RAN in os.environ else []
    return "; ".join(wrong)


def attempted(folder: Path) -> dict[str, str]:
    """Return what is wrong with each attempt's end, by its name."""
    logging.disable(logging.CRITICAL)
    made = Hospital(folder)
    honest = made.approved()  # what is imported late is imported by now
    made.call(honest)
    for again in (a_wrong_signature, keys_that_carry_code):
        made.node.handle(made.coordinator, again(made))
    found = {attempt.__name__: tried(made, attempt) for attempt in ATTEMPTS[:-1]}
    told_, answer = made.offered(made.signed()), made.call(honest)
    if told_["state"] != "approved" or answer["kind"] != "reply":
        found["an honest study afterwards"] = f"it is {told_} and {answer}"
    found[ATTEMPTS[-1].__name__] = tried(made, ATTEMPTS[-1])
    made.node.close()
    return found


def measure() -> tuple[str, bool]:
    """Try all; say how many were refused."""
    sys.addaudithook(_hook)
    with tempfile.TemporaryDirectory() as folder:
        found = attempted(Path(folder).resolve())
    for name, wrong in found.items():
        if wrong:
            print(f"{name}: {wrong}")
    good = sum(not wrong for wrong in found.values())
    text = (
        f"{good} of {len(found)} refused; no code run, nothing unpacked, no table opened, nothing "
        f"laid on the desk"
    )
    return text, good == len(found) >= 10


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
