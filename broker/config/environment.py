"""Settings from environment variables, in the forms that the images of Kafka use.

`KAFKA_LOG_SEGMENT_BYTES` sets `log.segment.bytes`: a single underscore is a dot. A few names have an underscore or a
hyphen: Apache's image writes them as `__` and `___`, Confluent's image the other way round. Apache's way is tried
first; Confluent's counts only if it alone gives a known name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.broker.config.layers import Setting
from ottla.broker.config.names import is_known

_PREFIX = "KAFKA_"
_ALIAS_PREFIX = "KAFKA_CFG_"

_APACHE = {"_": ".", "__": "_", "___": "-"}
_CONFLUENT = {"_": ".", "__": "-", "___": "_"}

# Variables for Kafka's scripts and images, and those that Kubernetes sets for a service named kafka.
_NOT_OPTIONS = frozenset(
    {
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPT",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_OPTS",
        "KAFKA_PORT",
        "KAFKA_VERSION",
    }
)
_NOT_OPTION_PREFIXES = ("KAFKA_JMX_", "KAFKA_LOG4J_", "KAFKA_PORT_", "KAFKA_SERVICE_", "KAFKA_TOOLS_")


def settings_from_environment(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings of a broker. If both `KAFKA_X` and `KAFKA_CFG_X` are set, the first counts."""
    aliases = [variable for variable in sorted(environment) if variable.startswith(_ALIAS_PREFIX)]
    others = [variable for variable in sorted(environment) if variable.startswith(_PREFIX)]
    settings = {}
    for variable in aliases:
        settings[_option_name(variable.removeprefix(_ALIAS_PREFIX))] = variable
    for variable in others:
        if not variable.startswith(_ALIAS_PREFIX) and not _is_not_option(variable):
            settings[_option_name(variable.removeprefix(_PREFIX))] = variable
    return {name: Setting(environment[variable], f"environment {variable}") for name, variable in settings.items()}


def _is_not_option(variable: str) -> bool:
    return variable in _NOT_OPTIONS or variable.startswith(_NOT_OPTION_PREFIXES)


def _option_name(words: str) -> str:
    apache, confluent = (_dotted(words, escapes) for escapes in (_APACHE, _CONFLUENT))
    return confluent if is_known(confluent) and not is_known(apache) else apache


def _dotted(words: str, escapes: Mapping[str, str]) -> str:
    return re.sub("_{1,3}", lambda match: escapes[match[0]], words.lower())
