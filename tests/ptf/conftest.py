"""The fixture of client_lab, for all tests here."""

from client_lab import lab

__all__ = ["lab"]
