"""STF: p4c's text format of packet tests, run on our switch. `python -m tests.stf --help`.

`grammar` turns a file into statements, `binding` resolves their names against a program, `runner` plays them to an
engine of `engines` and compares what comes out, `suite` does this for a directory of programs, each in a process of
its own, and `report` writes docs/conformance.md.
"""
