"""A broker that listens, says that it has started, tells its health, and stops: what `ottla up` knows of a broker.

The override `fake=BEHAVIOUR` or `fake=BEHAVIOUR:ID` makes all of them, or one, behave badly:

    fails       ends with exit code 3 before it listens
    silent      listens but never says that it has started
    stubborn    ignores SIGTERM
"""

import signal
import socket
import sys

options = dict(argument.split("=", 1) for argument in sys.argv if "=" in argument)
broker_id = options["broker.id"]
behaviour, _, only = options.get("fake", "").partition(":")
if only not in ("", broker_id):
    behaviour = ""

if behaviour == "fails":
    sys.stderr.write("the fake broker fails, as it was told\n")
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else lambda *_: sys.exit(0))
listeners = []
for key in ("listeners", "ottla.http.listener"):
    host, port = options[key].removeprefix("PLAINTEXT://").split(":")
    listeners.append(socket.create_server((host, int(port))))
if behaviour != "silent":
    sys.stdout.write(f"event='[KafkaServer id={broker_id}] started'\n")
    sys.stdout.flush()
while True:
    connection, _ = listeners[1].accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"leaders": 5, "under_replicated": 2, "is_controller": true}')
