"""A cluster of processes on this machine: a ZooKeeper and some brokers, in one directory that names the cluster.

The layout of the directory:

    cluster.json                 what belongs to the cluster and which processes run (`record.py`)
    .lock                        held by the command that starts or stops processes
    zookeeper/                   zoo.cfg, zookeeper.log, data/
    broker-1/ broker-2/ ...      server.properties, broker.log, data/

The processes know nothing of this package, and outlive the one that started them. It knows a broker only by its command
line and by the line that says that it has started, so that clients stay free of the broker's code.
"""
