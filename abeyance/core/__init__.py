"""The pure core: the state of a run, and every rule by which it changes.

A run is one value, `state.RunState`. It changes in one way only: `machine.advance(run, event)` changes it
in place, and returns the effects that the driver must carry out. Nothing in here does IO, reads a
clock, draws a random number or knows Temporal; every event has its time, and ids are hashes of
addresses. So the same events give the same run: in a unit test, in a Temporal worker, and in the replay
of an old history.

Start reading at `spec` (the declared graph), `state` (a run), `events` and `effects` (the two closed
unions at the border), `machine` (the entry point).
"""
