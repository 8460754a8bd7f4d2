"""Makes a failing case small: fewer lines, shorter frames, zeros where bytes do not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[str]], bool]


def fewer_lines(lines: Sequence[str], fails: Fails) -> list[str]:
    """Takes away runs of lines, halving their length, as long as the rest still fails."""
    kept = list(lines)
    length = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            rest = kept[:at] + kept[at + length :]
            if rest and fails(rest):
                kept = rest
            else:
                at += length
        if length == 1:
            return kept
        length //= 2


def _simpler_frame(frame: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Cuts the end off, then clears what is left byte by byte."""
    cut = len(frame) // 2
    while cut:
        if len(frame) > cut and fails(frame[:-cut]):
            frame = frame[:-cut]
        else:
            cut //= 2
    for at in range(len(frame)):
        cleared = frame[:at] + b"\0" + frame[at + 1 :]
        if cleared != frame and fails(cleared):
            frame = cleared
    return frame


def simpler_frames(lines: Sequence[str], fails: Fails) -> list[str]:
    """Cuts and clears the frames of the packets."""
    kept = list(lines)
    for at, line in enumerate(lines):
        word, _, rest = line.partition(" ")
        if word == "packet":
            port, _, digits = rest.partition(" ")
            before, after = tuple(kept[:at]), tuple(kept[at + 1 :])

            def still_fails(
                frame: bytes, port: str = port, before: Sequence[str] = before, after: Sequence[str] = after
            ) -> bool:
                return fails([*before, f"packet {port} {frame.hex()}", *after])

            kept[at] = f"packet {port} {_simpler_frame(bytes.fromhex(digits), still_fails).hex()}"
    return kept


def shrink(lines: Sequence[str], fails: Fails) -> list[str]:
    """A case that still fails. `lines` must fail."""
    return simpler_frames(fewer_lines(lines, fails), fails)
