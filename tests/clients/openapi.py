"""A client made from /openapi.json alone: paths, parameters, bodies and what is a good answer all come from there."""

import signal
import sys

import jsonschema_rs
import schemathesis

signal.alarm(60)  # an answer that is missing is a failure, not a hang

schema = schemathesis.openapi.from_url(f"{sys.argv[1]}/openapi.json")
document = schema.raw_schema


def resolve(part):
    """What a reference of the document stands for."""
    while "$ref" in part:
        found = document
        for word in part["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        part = found
    return part


class Client:
    """One method for each operation, under its operationId."""

    def __getattr__(self, name):
        operation = schema.find_operation_by_id(name)
        definition = document["paths"][operation.path][operation.method.lower()]
        places = {part["name"]: part["in"] for part in map(resolve, definition.get("parameters", []))}
        content = definition.get("requestBody", {}).get("content", {})

        def call(body=None, **values):
            parts = {"path": {}, "query": {}}
            for key, value in values.items():
                assert key in places, f"{name} has no parameter {key}"
                parts[places[key]][key] = value
            more = {}
            if content:
                [(media_type, about)] = content.items()
                # The body is one that the document allows.
                whole = {**about["schema"], "components": document["components"]}
                jsonschema_rs.validate(whole, body or {})
                more = {"body": body or {}, "media_type": media_type}
            case = operation.Case(path_parameters=parts["path"], query=parts["query"], **more)
            answer = case.call()
            # So is the answer: its status, its headers, its content type and its schema.
            case.validate_response(answer)
            return answer.status_code, answer.json() if answer.content else None

        return call


client = Client()

status, granted = client.acquire({"name": "user:42", "owner": "ann", "lease_ms": 60000})
assert (status, granted["status"]) == (200, "granted"), granted
id, token = granted["id"], granted["token"]

status, busy = client.acquire({"name": "user:42", "owner": "bob"})
assert (status, busy["code"], busy["blocker"]["owner"]) == (409, "busy", "ann"), busy
assert busy["blocker"]["token"] == token

status, found = client.list(name="user:42", owner="ann", limit=1)
assert status == 200 and [lock["id"] for lock in found["locks"]] == [id], found
assert client.list(name="user:43")[1]["locks"] == []
status, shown = client.show(id=id)
assert status == 200 and shown["resources"] == [{"name": "user:42", "argument": [], "mode": "X"}], shown

status, renewed = client.renew({"lease_ms": 90000}, id=id)
assert (status, renewed) == (200, {"status": "renewed", "lease_ms": 90000})
assert client.release(id=id) == (204, None)
status, gone = client.show(id=id)
assert (status, gone["code"]) == (404, "not_held"), gone

status, held = client.acquire({"resources": [{"name": "a", "argument": ["x", 1, True, "@"], "mode": "O"}]})
assert status == 200, held
status, promoted = client.promote(id=held["id"])
assert status == 200 and promoted["token"] > held["token"], promoted
assert client.revoke({"token": promoted["token"], "reason": "test"}) == (200, {"status": "revoked"})
status, ended = client.renew({}, id=held["id"])
assert (status, ended["cause"]) == (410, "revoked"), ended

print("done")
