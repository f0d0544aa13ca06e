"""Workarounds for libraries: each says what it works around, and since which version.

`tests/workflows/test_workarounds.py` shows that the library still needs it: a test that fails there
names code that can go. The client, the worker and the activities import them. Start reading at
`in_order_runner`.

Three are in other modules, where they have to be: `workflows.requests` takes signals as raw payloads,
because the SDK drops a signal that it cannot decode; `storage.converter` asks the activity for its run,
because the SDK stores heartbeat details without saying of which run they are; `cli.errors.leave` ends a
process without finalizing the interpreter, because threads of the SDK sometimes crash it (rarely, so no
test shows it).
"""
