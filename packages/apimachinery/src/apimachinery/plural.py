"""Numbers with nouns in texts for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return `1 pod` or `1,200 pods`; the plural of `noun` must end in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
