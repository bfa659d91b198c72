"""redis-py: RESP3 with pushes, RESP2, pipelines, publish and subscribe, and a connection that comes back."""

import json
import os
import signal
import socket
import sys
import threading
import time

import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry

PORT = int(sys.argv[1])
DURABLE = os.environ["KEYLATCH_KIND"] == "durable"
signal.alarm(60)  # an answer that is missing is a failure, not a hang


def connect(protocol=3):
    return redis.Redis(port=PORT, protocol=protocol, decode_responses=True)


def equal(got, wanted, why=""):
    assert got == wanted, f"got {got!r}, wanted {wanted!r} {why}"


def until(ask):
    while not ask():
        time.sleep(0.005)


def refused(begin, ask):
    try:
        answer = ask()
    except ResponseError as error:
        assert str(error).startswith(begin), f"got {error}, wanted {begin}"
    else:
        raise AssertionError(f"got {answer!r}, wanted the error {begin}")


def as_map(answer):
    """A map of RESP3, or the flat array that stands for it in RESP2."""
    if isinstance(answer, dict):
        return answer
    return dict(zip(answer[::2], answer[1::2]))


def locks(protocol):
    ann, bob = connect(protocol), connect(protocol)

    def say(client, *words):
        return as_map(client.execute_command(*words))

    got = say(ann, "LOCK", "user:42", "OWNER", "ann", "LEASE", 60000)
    equal(got["status"], "granted")
    equal((got["lease_ms"], got["waited_ms"]), (60000, 0))
    busy = say(bob, "LOCK", "user:42", "OWNER", "bob")
    equal([busy[word] for word in ("status", "owner", "mode", "state")], ["busy", "ann", "X", "held"])
    equal(say(bob, "LOCK", "user:42", "WAIT", 20)["status"], "timeout")

    outcome = {}
    words = ("LOCK", "user:42", "OWNER", "bob", "WAIT", 50000)
    thread = threading.Thread(target=lambda: outcome.update(say(bob, *words)))
    thread.start()
    until(lambda: len(ann.execute_command("LOCKS", "WAITERS")) == 2)
    equal(ann.execute_command("UNLOCK", got["id"]), 1)
    thread.join()
    equal(outcome["status"], "granted")
    assert outcome["token"] > got["token"], "tokens rise"
    equal(say(ann, "PROMOTE", "nobody"), {"status": "lost"})
    equal(bob.execute_command("UNLOCK", outcome["id"]), 1)

    # Composite keys: the wildcard overlaps, a quoted one is text.
    wild = say(ann, "LOCK", "product", "ARG", 2, "Computer", "@")
    equal(wild["status"], "granted")
    equal(say(bob, "LOCK", "product", "ARG", 2, "Computer", "Laptop")["status"], "busy")
    text = say(bob, "LOCK", "product", "ARG", 2, "Phone", "\\@")
    equal(text["status"], "granted")
    entries = [as_map(entry) for entry in bob.execute_command("LOCKS", "NAME", "product")]
    equal([entry["argument"] for entry in entries], [["Computer", "@"], ["Phone", "\\@"]])
    for lock in (wild, text):
        equal(ann.execute_command("UNLOCK", lock["id"]), 1)
    equal(ann.execute_command("LOCKS"), [])


def subset():
    client = connect()
    equal(client.set("k", "v", nx=True, px=60000), True)
    equal(client.set("k", "w", nx=True, px=60000), None)
    equal(client.get("k"), "v")
    assert client.pttl("k") > 50000
    equal(client.pexpire("k", 5000), True)
    assert client.pttl("k") <= 5000
    equal(client.exists("k", "none"), 1)
    native = client.execute_command("LOCK", "native")
    equal(client.get("native"), f"keylatch:{native['token']}")
    equal(client.delete("k", "native"), 1, "only what SET took")
    equal(client.exists("native"), 1)
    equal(client.execute_command("UNLOCK", native["id"]), 1)
    equal(client.get("k"), None)
    equal(client.pttl("k"), -2)
    refused("SYNTAX SET takes a lock here, so it needs NX", lambda: client.set("k", "v"))
    refused("UNKNOWN ", lambda: client.incr("k"))
    refused("SYNTAX 'Q' is not a mode", lambda: client.execute_command("LOCK", "k", "MODE", "Q"))
    with client.pipeline(transaction=False) as pipeline:
        for at in range(1000):
            pipeline.set(f"p{at}", at, nx=True).get(f"p{at}").delete(f"p{at}")
        equal(pipeline.execute(), [x for at in range(1000) for x in (True, str(at), 1)])


def pushes():
    """Granted later, timed out, lost: each is pushed to the connection whose request it was."""
    pushed = []
    waiter = redis.Connection(port=PORT, protocol=3, decode_responses=True)
    waiter.connect()
    waiter._parser.set_pubsub_push_handler(lambda message: pushed.append(message) or message)

    def say(*words):
        waiter.send_command(*words)
        return waiter.read_response()

    def next_push():
        waiter.read_response(push_request=True)
        word, outcome = pushed.pop(0)[1:]
        return word, outcome

    holder = connect()
    held = holder.execute_command("LOCK", "a", "OWNER", "ann")
    equal(say("LOCK", "a", "ID", "p1", "WAIT", 50000, "ASYNC")["status"], "waiting")
    equal(say("LOCK", "a", "ID", "p2", "WAIT", 20, "ASYNC")["status"], "waiting")
    word, outcome = next_push()
    equal((word, outcome["status"], outcome["id"]), ("timeout", "timeout", "p2"))
    equal(holder.execute_command("UNLOCK", held["id"]), 1)
    word, outcome = next_push()
    equal((word, outcome["status"], outcome["id"]), ("granted", "granted", "p1"))
    equal(holder.execute_command("REVOKE", outcome["token"], "REASON", "maintenance"), 1)
    word, lost = next_push()
    wanted = {"id": "p1", "token": outcome["token"], "cause": "revoked", "reason": "maintenance"}
    equal((word, lost), ("lost", wanted))
    equal(say("LOCK", "b", "ID", "p3", "LEASE", 20)["status"], "granted")
    word, lost = next_push()
    equal((word, lost["id"], lost["cause"]), ("lost", "p3", "expired"))
    # A promotion tells the others.
    equal(say("LOCK", "c", "MODE", "O", "ID", "p4")["status"], "granted")
    equal(holder.execute_command("LOCK", "c", "MODE", "O", "ID", "p5")["status"], "granted")
    equal(holder.execute_command("PROMOTE", "p5")["status"], "promoted")
    word, lost = next_push()
    equal((word, lost["id"], lost["cause"]), ("lost", "p4", "superseded"))
    equal(holder.execute_command("UNLOCK", "p5"), 1)
    waiter.disconnect()


def events(protocol):
    client, listener = connect(protocol), connect(protocol).pubsub()
    listener.subscribe("keylatch:events")
    equal(listener.get_message(timeout=30)["type"], "subscribe")
    client.execute_command("LOCK", "e", "ID", f"e{protocol}", "LEASE", 20)
    message = listener.get_message(timeout=30)
    equal(message["channel"], "keylatch:events")
    event = json.loads(message["data"])
    equal([event[word] for word in ("event", "id", "cause")], ["lost", f"e{protocol}", "expired"])
    listener.close()


def comes_back():
    """A waiter whose connection is cut keeps its place if it repeats its request in time."""
    holder, other = connect(), connect()
    held = holder.execute_command("LOCK", "q")
    first = socket.create_connection(("127.0.0.1", PORT))
    first.sendall(b"LOCK q ID first WAIT 50000\r\n")
    waiting = lambda count: len(holder.execute_command("LOCKS", "WAITERS")) == 1 + count
    until(lambda: waiting(1))
    first.close()
    answer = other.execute_command("LOCK", "q", "ID", "first", "WAIT", 50000, "ASYNC")
    equal(answer["status"], "waiting")
    equal(holder.execute_command("UNLOCK", held["id"]), 1)
    until(lambda: waiting(0) and holder.execute_command("LOCKS")[0]["id"] == "first")
    equal(other.execute_command("UNLOCK", "first"), 1)


def restarted():
    retry = Retry(ConstantBackoff(0.01), 500)
    client = redis.Redis(
        port=PORT, decode_responses=True, retry=retry, retry_on_error=[ConnectionError]
    )
    equal(client.set("kept", "v", nx=True), True)
    print("restart", flush=True)
    sys.stdin.readline()
    equal(client.get("kept"), "v" if DURABLE else None)
    equal(client.delete("kept"), 1 if DURABLE else 0)


for version in (2, 3):
    locks(version)
    events(version)
subset()
pushes()
comes_back()
restarted()
print("done")
