"""How many cases the tests of properties and the simulations try: few in each run, because each run draws others.

ZAMBEZI_EFFORT=10 make test
"""

import os

EFFORT = float(os.environ.get("ZAMBEZI_EFFORT", "1"))


def cases(number: int) -> int:
    """Return a number of cases, multiplied by the effort that the environment asks for."""
    return max(1, round(number * EFFORT))
