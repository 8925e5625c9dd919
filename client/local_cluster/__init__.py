"""A cluster of processes on this machine: a ZooKeeper and some brokers, in one directory that names the cluster.

The layout of the directory:

    cluster.json                 what belongs to the cluster and which processes run (`record.py`)
    rolling-restart.json         while a rolling restart is under way (`restart_mark.py`)
    .lock                        held by the command that starts or stops processes
    zookeeper/                   zoo.cfg, zookeeper.log, data/
    broker-1/ broker-2/ ...      server.properties, broker.log, data/

The processes do not depend on this package, and outlive the process that started them. This package knows only the
broker's command line and the line that the broker prints when it has started, so that clients do not import its code.
"""
