from decimal import Decimal

import openpyxl
import pytest

from starloom.errors import Bug
from starloom.tools.sheet_values import put_values


def test_values_stand_beside_their_formulas(tmp_path):
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    book.worksheets[0]["A1"] = "=1+1"
    book.create_sheet("other")["A1"] = "=2+2"
    book.save(path)
    put_values(path, 1, {"A1": Decimal("2.50")})
    read = openpyxl.load_workbook(path, data_only=True)
    assert read.worksheets[0]["A1"].value == 2.5
    assert read["other"]["A1"].value is None
    assert openpyxl.load_workbook(path).worksheets[0]["A1"].value == "=1+1"
    with pytest.raises(Bug, match="B9"):
        put_values(path, 1, {"A1": Decimal(1), "B9": Decimal(1)})
