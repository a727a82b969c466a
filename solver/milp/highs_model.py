"""A program as a model of HiGHS, its arrays handed over in one piece."""

from __future__ import annotations

import highspy
import numpy as np

from solver.milp.optimiser import Program


def model_of(program: Program) -> highspy.HighsLp:
    """All of a program but its objectives."""
    order = np.argsort(program.entry_row, kind="stable")
    in_row = np.bincount(program.entry_row, minlength=len(program.row_lower))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.lower), len(program.row_lower)
    model.col_cost_ = np.zeros(len(program.lower))
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_, model.a_matrix_.num_row_ = model.num_col_, model.num_row_
    model.a_matrix_.start_ = np.concatenate(([0], np.cumsum(in_row))).astype(np.int32)
    model.a_matrix_.index_ = program.entry_column[order].astype(np.int32)
    model.a_matrix_.value_ = program.entry_value[order]
    if program.integer.any():
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [kinds[whole] for whole in program.integer.tolist()]
    return model
