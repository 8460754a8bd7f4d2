"""Wrong use of `dcbtraffic rdma` names option, value and rule, and ends with status 2; what it does: tests/mininet."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from hosts.cli import app


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("send", "--dst", "10.9.0.2", "--dcqcn", "fast"), "'fast' is not a profile"),
        (("send", "--dst", "10.9.0.2", "--pfc", "3,8"), "priorities are 0..7"),
        (("send", "--dst", "10.9.0.2", "--duration", "soon"), "Invalid value for --duration"),
        (("send", "--dst", "10.9.0.2", "--rate", "much"), "Invalid value for --rate"),
        (("recv", "--from", "10.9.0.1", "--link-rate", "x"), "Invalid value for --link-rate"),
        (("recv",), "--from"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["rdma", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert (done.exit_code, says in done.output + done.stderr) == (2, True)
