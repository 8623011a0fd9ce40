"""The parts of flwr 1.41 that the adapter stands on are as they were when it was written.

`flwr.app`, `flwr.clientapp` and `flwr.serverapp` are Flower's public interface; the rest is its
inside. A newer flwr that changes one of them fails here, by name, before it fails in a hospital.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

flwr = pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message  # noqa: E402
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkState  # noqa: E402
from flwr.supercore.inflatable import inflatable_object, inflatable_utils  # noqa: E402
from flwr.supercore.object_store import ObjectStore  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402

from fedcohort.engines import flower  # noqa: E402
from fedcohort.engines.flower import gate  # noqa: E402

SOURCES = sorted(Path(flower.__file__).parent.glob("*.py"))

#: Everything that the adapter imports from flwr, module by module.
USED = {
    "flwr.app": "ConfigRecord Context Error Message RecordDict",
    "flwr.app.message": "remove_content_from_message",
    "flwr.clientapp": "ClientApp",
    "flwr.common.constant": "NOOP_ACCOUNT_NAME NOOP_FLWR_AID SUPERLINK_NODE_ID TIMESTAMP_HEADER",
    "flwr.common.serde": "message_from_proto message_to_proto",
    "flwr.proto.fleet_pb2": (
        "ActivateNodeRequest DeactivateNodeRequest PullMessagesRequest PushMessagesRequest"
    ),
    "flwr.proto.heartbeat_pb2": "SendNodeHeartbeatRequest",
    "flwr.proto.message_pb2": "ObjectTree PullObjectRequest PushObjectRequest",
    "flwr.proto.node_pb2": "Node",
    "flwr.server.superlink.linkstate": "InMemoryLinkState LinkStateFactory",
    "flwr.serverapp": "Grid",
    "flwr.supercore.constant": (
        "FLEET_HTTP_PUBLIC_KEY_HEADER FLEET_HTTP_SIGNATURE_HEADER FLWR_IN_MEMORY_DB_NAME "
        "NOOP_FEDERATION_ID TaskType"
    ),
    "flwr.supercore.error": "http_error_translator",
    "flwr.supercore.inflatable.inflatable_object": (
        "get_all_nested_objects get_object_tree iterate_object_tree no_object_id_recompute"
    ),
    "flwr.supercore.inflatable.inflatable_utils": "inflate_object_from_contents",
    "flwr.supercore.object_store": "NoObjectInStoreError ObjectStoreFactory",
    "flwr.supercore.primitives.asymmetric": "public_key_to_bytes sign_message",
    "flwr.supercore.protobuf.client": "ProtobufCall ProtobufRequestContext",
    "flwr.supercore.protobuf.translation": "ProtobufTranslationMiddleware",
    "flwr.supercore.run": "Run",
    "flwr.supercore.task_identity": "TaskIdentity",
    "flwr.superlink.federation": "NoOpFederationManager",
    "flwr.superlink.routers.fleet.node_auth": "NodeAuthMiddleware",
    "flwr.superlink.routers.fleet.router": "router",
    "flwr.supernode.fleet_http_client": "FleetHttpClient",
}

SIGNATURES = [
    (
        LinkState.create_node,
        "self, owner_aid, owner_name, public_key, heartbeat_interval, location, name",
    ),
    (LinkState.deactivate_node, "self, node_id"),
    (LinkState.delete_node, "self, owner_aid, node_id"),
    (LinkState.get_node_id_by_public_key, "self, public_key"),
    (LinkState.get_message_res, "self, message_ids, run_id"),
    (LinkState.delete_messages, "self, message_ins_ids"),
    (LinkState.claim_task, "self, task_id"),
    (LinkState.activate_task, "self, task_id"),
    (LinkState.acknowledge_task_heartbeat, "self, task_id"),
    (LinkState.store_message_and_object_tree, "self, message, object_tree, session_id"),
    (ObjectStore.get_object_tree, "self, object_id"),
    (ObjectStore.delete, "self, object_id"),
    (
        inflatable_utils.inflate_object_from_contents,
        "object_id, object_contents, keep_object_contents, objects",
    ),
    (inflatable_object.get_all_nested_objects, "obj"),
    (inflatable_object.get_object_tree, "obj"),
]


def imported() -> dict[str, set[str]]:
    """Return what the adapter's sources import from flwr."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
                found.setdefault(node.module or "", set()).update(a.name for a in node.names)
            elif isinstance(node, ast.Import):
                assert not any(a.name.split(".")[0] == "flwr" for a in node.names), path
    return found


def test_the_installed_flwr_is_the_one_that_the_adapter_names():
    from flwr.supercore.version import package_version

    assert package_version.startswith(flower.VERSION + ".")


def test_another_flwr_is_refused_in_one_line(monkeypatch):
    from fedcohort.protocol.errors import InputError

    monkeypatch.setattr(flower, "version", lambda name: "1.42.0")
    with pytest.raises(InputError, match=r"needs Flower 1\.41, but 1\.42\.0 is installed: pip in"):
        _ = flower.Hub


def test_the_list_of_what_is_used_is_whole():
    assert imported() == {module: set(names.split()) for module, names in USED.items()}


@pytest.mark.parametrize("module", USED)
def test_what_is_used_is_there(module):
    found = importlib.import_module(module)
    assert [name for name in USED[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize(
    ("function", "parameters"), SIGNATURES, ids=lambda v: getattr(v, "__qualname__", "")
)
def test_signatures_are_those_used(function, parameters):
    assert ", ".join(inspect.signature(function).parameters) == parameters


def test_the_state_and_the_client_have_the_calls_and_attributes_that_are_used():
    for name in ("create_run", "cleanup_run", "get_run_info", "get_nodes", "start_session",
                 "store_object", "get_object"):  # fmt: skip
        assert callable(getattr(LinkState, name)), name
    for name in ("message_ins_id_to_message_res_id",):
        assert name in InMemoryLinkState.__init__.__code__.co_names
    for path in gate.FLEET:
        name = "".join(part.title() for part in path.rsplit("/", 1)[1].split("-"))
        assert callable(getattr(FleetHttpClient, name)), name
    assert "_client" in FleetHttpClient.__init__.__code__.co_names


def test_a_messages_number_can_be_set_and_its_bytes_keep_their_type():
    from fedcohort.engines.flower.line import CALL, pack, unpack
    from fedcohort.engines.flower.local import line

    line({})
    message = Message(pack(b"\x00x"), 7, CALL)
    message.metadata.__dict__["_message_id"] = "n"
    assert message.metadata.message_id == "n"
    assert unpack(message.content) == b"\x00x"
    assert list(inspect.signature(Error.__init__).parameters) == ["self", "code", "reason"]
    assert Context(1, 2, {}, type(message.content)(), {}).node_id == 2
    assert isinstance(next(iter(message.content.config_records.values())), ConfigRecord)
