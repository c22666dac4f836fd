"""CEL and JSON Schema as formulas for z3: imported by `verify/solver.py` when it is first asked, never before."""
