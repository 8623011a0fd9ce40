"""A channel between two parties that trusts nothing in between: not the engine, nor a proxy.

A *caller* (the coordinator towards sites; a lead, or a site, towards the coordinator) sends calls;
a *callee* answers each. Layout and primitives are in `seal`, the two ends in `caller` and `callee`.

    hello    A→B   network, A, B, version, random, X_A = x25519 key drawn now, cert_A,
                   signed by cert_A's key
    welcome  B→A   B, A, version, random, X_B, session, cert_B, signed by cert_B's key
                   with the hello
                   k_calls, k_replies = HKDF(x25519 secret, salt = SHA-256(hello, welcome))
    call     A→B   session, counter, nonce, AES-256-GCM(k_calls, body)
    reply    B→A   session, the call's counter, nonce, AES-256-GCM(k_replies, body)

Either side checks that the certificate is the network's and is good now (`trust`), that it has the
role and the very name of the party that is spoken to, the signature, and that versions agree in
their first two numbers. The callee holds a session as provisional until a first call opens, which
proves that A knows the keys. A counter is taken once; calls may come in any order within the last
1024. After 100 000 calls or 24 hours a caller says hello again.

Keys live in memory alone. A callee that has restarted answers "no key" to the next call, upon which
the caller says hello and sends the call anew; a caller that has restarted says hello. A call whose
counter was taken ("replayed": an engine that repeats a message does this too) is not handled
again, and the caller sends it under a new counter. That its effect comes once is the care of what
lies above, where a call has a number and a digest.

What each can do:

    engine, relay, TLS proxy   sees sizes, times, names, certificates; can delay and drop, and can
                   pretend a refusal, so that a call fails or is sent up to three times. It reads no
                   body, and cannot alter, forge, repeat, swap or redirect one
    another party of the network   the same: its certificate opens its own sessions alone
    who recorded all, and later gets a certificate's key   nothing of what was recorded: x25519
                   keys are forgotten (forward secrecy)
    who has a party's key   speaks as that party until its certificate expires or is revoked, and as
                   nobody else
    who has the authority's key   makes any party: it never leaves the network's folder
    anybody else   costs the callee a hello of at most 16 kB, a signature check, and no memory

Who repeats another's hello gets a provisional session that it cannot use; there are few of these,
and none displaces a session in use.
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
