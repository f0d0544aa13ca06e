"""The pure core: what a run is, and every rule by which it changes.

A run is one frozen value, `state.RunState`. It changes in one way only: `machine.advance(state,
event)` returns the next state and the effects that somebody else must carry out. No module in here
does IO, reads a clock, draws a random number or knows Temporal; time is a field of every event, and
ids are made by hashing addresses. So the same events give the same run: in a unit test, in a
Temporal worker, and in the replay of a history from last year.

Where to begin: `model` (what an author declared), `state` (what is true of a run), `events` and
`effects` (the two closed unions at the border), `machine` (how they meet).
"""
