"""Shrinking: remove draws or set them to zero, as long as the schedule shows the same fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.simulation.schedule import Played, play


def shrunk(found: Played, *, most: int = 600, again: Callable[..., Played] = play) -> Played:
    """Return a schedule with the same fault and as few draws as `most` attempts find."""
    best = found
    left = most
    is_shorter = True
    while is_shorter and left > 0:
        is_shorter = False
        for draws in _shorter(best.draws):
            if left == 0:
                break
            left -= 1
            played = again(found.seed, draws)
            if played.kind == found.kind and _size(played) < _size(best):
                best, is_shorter = played, True
                break
    return best


def _size(played: Played) -> tuple[int, int, int]:
    draws = _trimmed(played.draws)
    return len(draws), sum(map(bool, draws)), sum(draws)


def _trimmed(draws: Sequence[int]) -> list[int]:
    """Return the draws without the zeros at their end, which follow anyway."""
    kept = len(draws)
    while kept and not draws[kept - 1]:
        kept -= 1
    return list(draws[:kept])


def _shorter(draws: Sequence[int]) -> Iterator[list[int]]:
    """Yield shorter or smaller draws, the boldest cuts first."""
    known = _trimmed(draws)
    size = len(known)
    while size := size // 2:
        for at in range(len(known) - size, -1, -size):
            yield [*known[:at], *known[at + size :]]
            if any(known[at : at + size]):
                yield [*known[:at], *[0] * size, *known[at + size :]]
    for at, drawn in enumerate(known):
        if drawn > 1:
            yield [*known[:at], drawn // 2, *known[at + 1 :]]
            yield [*known[:at], drawn - 1, *known[at + 1 :]]
