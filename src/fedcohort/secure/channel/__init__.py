"""A channel between two parties that trusts nothing in between: not the engine, nor a proxy.

A *caller* (the coordinator towards sites; a lead or a site towards the coordinator) sends calls; a
*callee* answers each. Layout and primitives are in `seal`, the two ends in `caller` and `callee`.

    hello    A→B   network, A, B, version, random, X_A = x25519 key drawn now, cert_A,
                   signed by cert_A's key
    welcome  B→A   B, A, version, random, X_B, session, cert_B, signed by cert_B's key
                   with the hello
                   k_calls, k_replies = HKDF(x25519 secret, salt = SHA-256(hello, welcome))
    call     A→B   session, counter, nonce, AES-256-GCM(k_calls, body)
    reply    B→A   session, the call's counter, nonce, AES-256-GCM(k_replies, body)

Each side checks the other's certificate (of the network, valid now: `trust`), role and name, the
signature, and that the first two version numbers agree. The callee holds a session as provisional
until its first call, which proves that A knows the keys. A counter is taken once; calls may come in
any order within the last 1024. After 100 000 calls or 24 hours a caller says hello again.

Keys live in memory alone. A restarted callee answers "no key"; the caller then says hello and sends
the call again. A restarted caller says hello. A call with a taken counter ("replayed", also by an
engine that repeats a message) is not handled again; the caller sends it under a new counter. The
layer above, where a call has a number and a digest, applies it once.

Capabilities:

    engine, relay, TLS proxy   sees sizes, times, names, certificates; can delay and drop, and can
                   pretend a refusal, so that a call fails or is sent up to three times. It reads no
                   body, and cannot alter, forge, repeat, swap or redirect one
    another party of the network   the same: its certificate opens its own sessions alone
    a recorder of all that later gets a certificate's key   nothing of what was recorded: x25519
                   keys are forgotten (forward secrecy)
    holder of a party's key   speaks as that party until its certificate expires or is revoked, and
                   as nobody else
    holder of the authority's key   makes any party: it never leaves the network's folder
    anybody else   costs the callee a hello of at most 16 kB, a signature check, and no memory

A repeated hello of another party opens a provisional session that its sender cannot use; these are
few, and none displaces a session in use.
"""

from fedcohort.secure.channel.callee import Callee
from fedcohort.secure.channel.caller import Caller, Refusal, Single
from fedcohort.secure.channel.rate_limit import Log, RateLimit
from fedcohort.secure.channel.seal import VERSION, compatible, read_json, upgrade

__all__ = [
    "Callee",
    "Caller",
    "Log",
    "RateLimit",
    "Refusal",
    "Single",
    "VERSION",
    "compatible",
    "read_json",
    "upgrade",
]
