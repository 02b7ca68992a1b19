"""The paper's figures and theorems, run again and compared with its claims: `entroplay reproduce`.

This file imports nothing: the command line needs `names.py` before JAX is loaded.
"""
