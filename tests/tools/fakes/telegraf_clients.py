"""Code of users that sends to Telegraf through the real pytelegraf (requirements/telegraf.sh)."""

import pytest

from tests.servers.setting import MUST_FETCHED
from tests.tools.sources import ROOT

PLACE = ROOT / ".venv" / "telegraf"
_IS_THERE = (PLACE / "telegraf" / "client.py").exists()
needs_pytelegraf = pytest.mark.skipif(
    not _IS_THERE and not MUST_FETCHED, reason="pytelegraf isn't there: requirements/telegraf.sh"
)

# copied from the documentation of MLO's job monitor
SNIPPETS = """
from telegraf.client import TelegrafClient
client = TelegrafClient(host='localhost', port=8092)
client.metric('training_loss', 0.46) # fast & non-blocking

# Records a single value with no tags
client.metric('test_metric', 123)

# Records a three values with different data types
client.metric('test_metric', {'value_a': 100, 'value_b': 100, 'value_c': True})

# Records a single value with one tag
client.metric('test_metric', 123, tags={'server_name': 'my-server'})
client.metric("training_loss", {"iteration": 1, "value": 0.45}, tags={"host": "iccluster45", "user": "vogels", "experiment_id": 10})
"""  # noqa: E501

# pytelegraf 0.3.3 sends it, although it is not valid line protocol
INVALID = """
client.metric('loss', float('nan'))
client.metric('loss', {'a': float('inf'), 'b': 1})
client.metric('words', 'say "hi" to them')
client.metric('list', [1, 2, 3])
client.metric('tag', 1, tags={'server': ''})
client.metric('none', {'a': None})
"""


# Wait until the receiver has processed the metrics: it cannot identify a sender that has exited.
SETTLED = """
import socket
for _ in range(4):
    with socket.create_connection((client.host, client.port)) as stream:
        stream.sendall(b'#\\n')
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)
"""


def connected(address: str = "os.environ['LOGSHIPPER_TELEGRAF']") -> str:
    """Return code that defines `client`, `host` and `port`. address: an expression."""
    return (
        "import os\nfrom telegraf.client import TelegrafClient\n"
        f"host, port = {address}.split(':')\nport = int(port)\nclient = TelegrafClient(host=host, port=port)"
    )
