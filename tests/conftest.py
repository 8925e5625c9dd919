"""Fixtures and hooks for all tests."""

from tests.kit.broker_process import broker, make_broker, topic
from tests.kit.coroutines import pytest_asyncio_loop_factories, pytest_runtest_call
from tests.kit.examples import register_profiles
from tests.kit.garbage import pytest_collection
from tests.kit.machine import pytest_configure, pytest_report_header
from tests.kit.open_sockets import pytest_sessionstart
from tests.kit.schedule import pytest_collection_modifyitems
from tests.kit.zookeeper import zookeeper, zookeeper_server

__all__ = [
    "broker",
    "make_broker",
    "pytest_asyncio_loop_factories",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_header",
    "pytest_runtest_call",
    "pytest_sessionstart",
    "topic",
    "zookeeper",
    "zookeeper_server",
]

# Before test modules are imported: their settings are those of the profile of that moment.
register_profiles()
