"""A `Line` over Flower's `Grid`, and the `ClientApp` at its other end: bytes in, bytes out.

Beutel et al., "Flower: A Friendly Federated Learning Framework", arXiv:2007.14390; the message API
of flwr 1.41 (`flwr.app`, `flwr.serverapp`, `flwr.clientapp`). A request is one Flower message of
type `query.call` with one record; so is its reply:

    Message(RecordDict({"fedcohort": ConfigRecord({"body": bytes})}), node, "query.call")

This module polls for replies: `Grid.send_and_receive` sleeps three seconds between looks. A
ClientApp hands the bytes to an `Answering` and catches every exception, because Flower would carry
its text, with cell values, to the coordinator.

Revealed: nothing by this module; Flower's SuperLink sees lengths and times of messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedcohort.protocol.line import Answering, Silence

CALL = "query.call"
_RECORD, _BODY = "fedcohort", "body"

#: Seconds between two looks for replies: first, and at most.
LOOKS = (0.005, 0.25)

#: A node's code for "my answerer broke"; nothing else about it travels.
BROKEN = 2


def silence_log() -> None:
    """Limit Flower's console log to critical errors."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)


def pack(body: bytes) -> RecordDict:
    """Return the content of a Flower message that carries some bytes."""
    return RecordDict({_RECORD: ConfigRecord({_BODY: bytes(body)})})


def unpack(content: RecordDict) -> bytes:
    """Return the bytes in the content of a Flower message.

    Raises
    ------
    ValueError : the content is not what `pack` makes.
    """
    record = content.config_records.get(_RECORD)
    if record is None or len(content) != 1 or list(record) != [_BODY]:
        raise ValueError("a Flower message without a body of fedcohort")
    body = record[_BODY]
    if not isinstance(body, bytes):
        raise ValueError("a Flower message whose body is no bytes")
    return body


def client_app(open_site: Callable[[Context], Answering]) -> ClientApp:
    """Return a site's end on Flower: one handler, which passes every request to an `Answering`.

    Parameters
    ----------
    open_site : finds the site's answerer from the node's context (`node_config`).
    """
    app = ClientApp()

    @app.query("call")
    def call(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        try:
            return Message(pack(open_site(context)(unpack(message.content))), reply_to=message)
        except Exception:  # whatever it says, it must not travel
            return Message(Error(BROKEN, "refused"), reply_to=message)

    return app


class FlowerLine:
    """A coordinator's end of Flower: sends each site its bytes and polls for replies.

    Parameters
    ----------
    grid : of a ServerApp, a hub, or this process.
    nodes : Flower's number of each site.
    """

    def __init__(self, grid: Grid, nodes: Mapping[str, int]):
        self._grid, self._nodes = grid, nodes

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites of the network, sorted."""
        return tuple(sorted(self._nodes))

    @property
    def connected(self) -> frozenset[str]:
        """Names of the sites whose nodes Flower has online."""
        online = set(self._grid.get_node_ids())
        return frozenset(site for site, node in self._nodes.items() if node in online)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Send each named site its request; yield replies as they come, all until `timeout`."""
        until = time.monotonic() + timeout
        here = self.connected
        sent, not_sent = dict[str, str](), dict[str, Silence]()
        try:
            for site, body in requests.items():
                if site not in self.sites:
                    not_sent[site] = Silence(f"{site!r} is no site of this network.", late=False)
                elif site not in here:
                    not_sent[site] = Silence(f"site {site!r} is not connected.", late=False)
                elif (number := self._send(site, body)) is None:
                    not_sent[site] = Silence(f"Flower took no message for {site!r}.", late=False)
                else:
                    sent[number] = site
            yield from not_sent.items()
            wait = LOOKS[0]
            while sent:
                news = self._news()
                came = self._look(sent)
                for number, reply in came:
                    yield sent.pop(number), reply
                left = until - time.monotonic()
                if sent and left <= 0:
                    for number, site in list(sent.items()):
                        del sent[number]
                        self._forget([number])
                        yield site, Silence(f"site {site!r} did not answer in {timeout:g} s.")
                elif sent:
                    wait = LOOKS[0] if came else min(1.3 * wait, LOOKS[1])
                    self._pause(min(wait, left), news)
        finally:
            self._forget(sent)

    def _look(self, sent: Mapping[str, str]) -> list[tuple[str, bytes | Silence]]:
        """Return the replies that are there, by the numbers of their requests."""
        came = list[tuple[str, bytes | Silence]]()
        for reply in self._grid.pull_messages(list(sent)):
            number = reply.metadata.reply_to_message_id
            if number in sent:
                came.append((number, read(reply, sent[number])))
        return came

    def _send(self, site: str, body: bytes) -> str | None:
        """Give Flower one message; return its number."""
        return next(iter(self._grid.push_messages([self._message(site, body)])), None) or None

    def _message(self, site: str, body: bytes) -> Message:
        return Message(pack(body), self._nodes[site], CALL)

    def _news(self) -> int:
        """Return how often something came; an exchange's own, as several may go on at once."""
        return 0

    def _pause(self, seconds: float, news: int) -> None:
        """Wait for replies, beyond those of which there was news before the latest look."""
        time.sleep(seconds)

    def _forget(self, numbers: Collection[str]) -> None:
        """Nobody waits for replies to these messages any more."""


def read(reply: Message, site: str) -> bytes | Silence:
    """Return the bytes of a reply, or why it has none, without an error's text."""
    try:
        if reply.has_error():
            code = int(reply.error.code)
            why = (
                "refused a message." if code == BROKEN else f"did not answer (Flower error {code})."
            )
            return Silence(f"site {site!r} {why}")
        return unpack(reply.content)
    except Exception:
        return Silence(f"site {site!r} sent what cannot be read.")
