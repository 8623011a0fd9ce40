"""The classes of nvflare 2.9 that the adapter stands on are as they were when it was written.

A newer nvflare that changes one of them fails here, by name, before it fails in a hospital.
"""

from __future__ import annotations

import inspect

import pytest

nvflare = pytest.importorskip("nvflare")

from nvflare.fuel.f3 import communicator, connection  # noqa: E402
from nvflare.fuel.f3.cellnet import identity  # noqa: E402
from nvflare.fuel.f3.comm_config import CommConfigurator  # noqa: E402
from nvflare.fuel.f3.drivers import base_driver, driver  # noqa: E402
from nvflare.fuel.f3.endpoint import Endpoint, EndpointState  # noqa: E402
from nvflare.fuel.f3.message import AppIds, Message  # noqa: E402
from nvflare.fuel.f3.sfm import conn_manager, sfm_conn  # noqa: E402
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types  # noqa: E402
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, PREFIX_STRUCT, Prefix  # noqa: E402

SIGNATURES = [
    (communicator.Communicator.__init__, "self, local_endpoint, identity_resolver"),
    (communicator.Communicator.add_connector_advanced, "self, driver, mode, params, secure, start"),
    (communicator.Communicator.register_message_receiver, "self, app_id, receiver"),
    (communicator.Communicator.register_monitor, "self, monitor"),
    (communicator.Communicator.send, "self, endpoint, app_id, message"),
    (communicator.Communicator.remove_endpoint, "self, name"),
    (communicator.Communicator.start, "self"),
    (communicator.Communicator.stop, "self"),
    (Endpoint.__init__, "self, name, properties, conn_props"),
    (Message.__init__, "self, headers, payload"),
    (
        identity.CellIdentityResolver.__init__,
        "self, local_fqcn, prefix_identity_map, exact_identity_map",
    ),
    (identity.CellIdentityResolver.resolve, "self, fqcn"),
    (identity.CellIdentityResolver.require_match, "self, fqcn, peer_cn, peer_desc"),
    (base_driver.BaseDriver.add_connection, "self, conn"),
    (base_driver.BaseDriver.close_connection, "self, conn"),
    (base_driver.BaseDriver.close_all, "self"),
    (driver.Driver.listen, "self, connector"),
    (driver.Driver.connect, "self, connector"),
    (driver.Driver.shutdown, "self"),
    (connection.Connection.__init__, "self, connector"),
    (connection.Connection.send_frame, "self, frame"),
    (connection.Connection.close, "self"),
    (conn_manager.SfmFrameReceiver.__init__, "self, conn_manager, conn"),
    (conn_manager.ConnManager.start_connector_task, "connector"),
    (sfm_conn.SfmConnection.send_heartbeat, "self, frame_type, data"),
    (sfm_conn.SfmConnection.get_send_stall_seconds, "self"),
]


def test_the_installed_nvflare_is_the_one_that_the_adapter_names():
    from fedcohort.engines.flare.end import VERSION

    assert nvflare.__version__.startswith(VERSION + ".")


@pytest.mark.parametrize(
    ("function", "parameters"), SIGNATURES, ids=lambda v: getattr(v, "__qualname__", "")
)
def test_signatures_are_those_used(function, parameters):
    assert ", ".join(inspect.signature(function).parameters) == parameters


def test_a_frame_begins_as_the_driver_reads_it():
    assert (PREFIX_LEN, PREFIX_STRUCT.format) == (16, ">IHBBHHHH")
    found = Prefix.from_bytes(PREFIX_STRUCT.pack(1, 2, 3, 0, 0, 4, 5, 6))
    assert (found.length, found.header_len, found.type, found.app_id) == (1, 2, 3, 4)
    assert (Types.DATA, Types.HELLO, Types.READY, Types.PING, Types.PONG) == (1, 4, 5, 6, 7)
    assert (HandshakeKeys.ENDPOINT_NAME, AppIds.DEFAULT) == ("endpoint_name", 1)
    assert {"READY", "DISCONNECTED"} <= set(EndpointState.__members__)


def test_a_file_in_the_working_directory_is_neither_searched_for_nor_obeyed(tmp_path, monkeypatch):
    from fedcohort.engines.flare import end  # noqa: F401 - the import is what counts

    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "comm_config.json").write_text('{"max_message_size": 1}')
    monkeypatch.chdir(tmp_path)
    assert CommConfigurator().get_config() is None
    CommConfigurator.reset()
    try:  # as FLARE would do it: the file is found, so the line above is not for nothing
        assert CommConfigurator().get_config() == {"max_message_size": 1}
    finally:
        CommConfigurator._config_loaded, CommConfigurator._configuration = True, None


def test_the_manager_of_connections_has_the_parts_that_are_replaced():
    made = communicator.Communicator(Endpoint("x"), identity.CellIdentityResolver("x"))
    manager = made.conn_manager
    assert manager.conn_mgr_executor.submit and manager.frame_mgr_executor.submit
    assert identity.CellIdentityResolver("hub").resolve("x.y") == "x"
    assert manager.identity_resolver is not None
    source = inspect.getsource(conn_manager.ConnManager.update_endpoint)
    assert "require_match" in source and "is_mtls_connection" in source
