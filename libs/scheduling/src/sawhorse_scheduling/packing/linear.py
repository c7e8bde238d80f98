"""Linear programs on HiGHS through arrays: quiet, one thread, the same answer every time."""

import ctypes
import os
import sys
import threading
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from sawhorse_scheduling.arrays import FloatArray, IntArray

INFINITE = float(highspy.kHighsInf)

_quieting = threading.Lock()
_quiet = False


@dataclass(frozen=True, slots=True)
class Solved:
    """An optimal solution. Duals have the sign of minimisation: ≥ 0 on rows that hold from below."""

    objective: float
    values: FloatArray  # one per variable
    duals: FloatArray  # one per row


class LinearProgram:
    """Minimise cost · x with x ≥ 0 under rows that may be added to; it starts again from the last basis."""

    def __init__(self, lower: FloatArray, upper: FloatArray) -> None:
        """Rows, still without variables."""
        _silence_banner()
        self._highs = _new_highs()
        self.rows = 0
        self.variables = 0
        self.steps = 0  # simplex iterations × rows so far: what solving took, in units that no clock knows
        self.add_rows(lower, upper)

    def add_rows(self, lower: FloatArray, upper: FloatArray) -> None:
        """More rows, empty; variables added later may enter them."""
        none = np.zeros(0, dtype=np.int32)
        starts = np.zeros(len(lower), dtype=np.int32)
        self._highs.addRows(len(lower), lower, upper, 0, starts, none, np.zeros(0))
        self.rows += len(lower)

    def add_variables(
        self,
        cost: FloatArray,
        variable: IntArray,
        row: IntArray,
        coefficient: FloatArray,
        upper: FloatArray | None = None,
    ) -> None:
        """More variables.

        Args:
            cost: (n,) one per new variable.
            variable, row, coefficient: (z,) the matrix entries; variables count from 0 within this call.
            upper: (n,) largest values; no limit without.
        """
        keep = coefficient != 0
        variable, row, coefficient = variable[keep], row[keep], coefficient[keep]
        order = np.lexsort((row, variable))
        variable, row, coefficient = variable[order], row[order], coefficient[order]
        starts = np.searchsorted(variable, np.arange(len(cost))).astype(np.int32)
        self._highs.addCols(
            len(cost),
            cost,
            np.zeros(len(cost)),
            np.full(len(cost), INFINITE) if upper is None else upper,
            len(row),
            starts,
            row.astype(np.int32),
            np.ascontiguousarray(coefficient, dtype=np.float64),
        )
        self.variables += len(cost)

    def set_costs(self, variables: IntArray, cost: FloatArray) -> None:
        """Change what variables cost."""
        self._highs.changeColsCost(len(variables), variables.astype(np.int32), cost)

    def set_rows(self, rows: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """Change between what rows must lie."""
        # Missing in highspy's type stubs.
        self._highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, upper)  # type: ignore[attr-defined]

    def solve(self) -> Solved | None:
        """The optimum, or None where HiGHS found none."""
        self._highs.run()
        self.steps += self.rows * max(1, int(self._highs.getInfo().simplex_iteration_count))
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        return Solved(
            objective=float(self._highs.getInfo().objective_function_value),
            values=np.array(solution.col_value, dtype=np.float64),
            duals=np.array(solution.row_dual, dtype=np.float64),
        )


def _new_highs() -> "highspy._core._Highs":
    highs = highspy._core._Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0), ("presolve", "off")):
        highs.setOptionValue(option, value)
    return highs


def _silence_banner() -> None:
    """Let HiGHS print its banner, once in a process and whatever its options, into nothing."""
    global _quiet
    with _quieting:
        if _quiet:
            return
        sys.stdout.flush()
        kept = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 1)
            highs = _new_highs()
            one: NDArray[np.float64] = np.ones(1)
            none = np.zeros(0, dtype=np.int32)
            highs.addCols(1, one, np.zeros(1), one, 0, np.zeros(1, dtype=np.int32), none, np.zeros(0))
            highs.run()
            ctypes.CDLL(None).fflush(None)  # what C's stdio holds back must go there too
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            os.close(nowhere)
        _quiet = True
