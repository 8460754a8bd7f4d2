"""C from a BMv2 program: `generate(program)` gives the source of `pl_program()` (switch/native/abi.h).

layout: where fields lie in the PHV, how table keys are packed, the order of tables and externs. expressions: trees to C
by range analysis. bits: fields to bytes and back at places known beforehand. parsing, actions, tables, calculations,
deparsing: the parts of a program. generator: puts them together. Nothing here is specific to one program.
"""

from switch.codegen.generator import CodegenError, generate

__all__ = ["CodegenError", "generate"]
