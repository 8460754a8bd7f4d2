"""A differential fuzzer: random tables and packets through the interpreter and the generated C. `make fuzz`.

`generate` makes a case as the lines of an STF file, from one seeded generator; `compare` plays it to both engines in a
process of its own and says where they differ; `shrink` takes away what the difference does not need. What is left is
printed as an STF file, which `python -m tests.stf` reads. The bundled dcb.p4 acts on the traffic manager, which the
interpreter does not have: its pipelines are compared alone, by tests/unit/codegen_fuzz.py.
"""
