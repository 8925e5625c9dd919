"""The module `aiokafka.errors`."""

from ottla.client.aiokafka.errors import *  # noqa: F403 - one class for each error
