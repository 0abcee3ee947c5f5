"""The one shape in which tools hand tables to each other, and exact sums over it.

Made by `invoices` and `sheets`, taken by `sheets` and `reports`. Money is a decimal string, never a binary float.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from starloom.tools.toolset import ToolFailure

Cell: TypeAlias = str | int | float | bool | None

AMOUNT_COLUMN = "total"
CURRENCY_COLUMN = "currency"

_OPEN = ConfigDict(extra="ignore")  # a table from another tool may say more; only what is known here is kept


@with_config(_OPEN)
class Unreadable(TypedDict):
    """A document that was left out, and why."""

    file: str
    reason: str


@with_config(_OPEN)
class Table(TypedDict):
    """Rows under named columns. `totals` maps a currency to the exact sum of the rows' `total` column, as a string."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    totals: NotRequired[dict[str, str]]
    unreadable: NotRequired[list[Unreadable]]


TableReference: TypeAlias = Annotated[Table, Field(json_schema_extra={"x-reference": True})]


def as_decimal(cell: Cell) -> Decimal | None:
    """Return the exact number a cell holds, or None when it holds none."""
    if cell is None or isinstance(cell, bool):
        return None
    try:
        number = Decimal(str(cell))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def money(amount: Decimal) -> str:
    """Return an amount as a plain decimal string with at least two places."""
    places = max(2, -int(amount.as_tuple().exponent))
    return f"{amount:.{places}f}"


def check_shape(table: Table) -> None:
    """Check that every row has one cell a column.

    Raises:
        ToolFailure: a row is longer or shorter.
    """
    width = len(table["columns"])
    for number, row in enumerate(table["rows"], start=1):
        if len(row) != width:
            raise ToolFailure(f"Row {number} of table {table['title']!r} has {len(row)} cells for {width} columns.")


def money_columns(table: Table) -> tuple[int, int] | None:
    """Return the positions of the amount and the currency column, or None when the table has no such pair."""
    columns = table["columns"]
    if AMOUNT_COLUMN in columns and CURRENCY_COLUMN in columns:
        return columns.index(AMOUNT_COLUMN), columns.index(CURRENCY_COLUMN)
    return None


def totals_of(table: Table) -> dict[str, Decimal]:
    """Return the table's totals by currency, summed from its rows; stated ones are checked, never believed.

    Raises:
        ToolFailure: the stated totals are not the sum of the rows, or an amount is not a number.
    """
    stated = {currency: Decimal(amount) for currency, amount in _numbers(table).items()}
    places = money_columns(table)
    if places is None:
        return stated
    sums: dict[str, Decimal] = {}
    for row in table["rows"]:
        amount = as_decimal(row[places[0]])
        if amount is None:
            raise ToolFailure(f"The table {table['title']!r} has {row[places[0]]!r} where an amount belongs.")
        currency = str(row[places[1]] or "")
        sums[currency] = sums.get(currency, Decimal(0)) + amount
    if "totals" in table and stated != sums:
        raise ToolFailure(
            f"The totals of table {table['title']!r} are stated as {_shown(stated)} but its rows sum to {_shown(sums)}."
        )
    return sums


def add_totals(totals: Iterable[dict[str, Decimal]]) -> dict[str, Decimal]:
    """Return the sum by currency over several tables, currencies in alphabetical order."""
    together: dict[str, Decimal] = {}
    for one in totals:
        for currency, amount in one.items():
            together[currency] = together.get(currency, Decimal(0)) + amount
    return dict(sorted(together.items()))


def unreadable_of(tables: Sequence[Table]) -> list[Unreadable]:
    """Return every document that any of the tables left out; the file is prefixed with the table's title."""
    return [
        Unreadable(file=f"{table['title']}/{item['file']}", reason=item["reason"])
        for table in tables
        for item in table.get("unreadable", [])
    ]


def _numbers(table: Table) -> dict[str, str]:
    stated = table.get("totals", {})
    for currency, amount in stated.items():
        if as_decimal(amount) is None:
            raise ToolFailure(f"The total of {currency} in table {table['title']!r} is {amount!r}, not a number.")
    return stated


def _shown(totals: dict[str, Decimal]) -> str:
    return ", ".join(f"{currency} {money(amount)}" for currency, amount in sorted(totals.items())) or "nothing"
