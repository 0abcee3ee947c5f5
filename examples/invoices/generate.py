"""Draw the example invoices from `truth.json`: twelve layouts, PDF and plain text, English and German.

Run it after a change to `truth.json`:  python examples/invoices/generate.py [--into FOLDER]
The output is the same on every run and machine. Needs fpdf2, which the `test` extra brings. Called by the test that
compares the committed files with fresh ones; no part of Starloom reads `truth.json`.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdf_layouts import (
    MONTHS,
    Invoice,
    Sheet,
    amount_due,
    boxed_total,
    carried_forward,
    credit_line,
    day_of,
    dotted,
    english,
    german,
    german_carried,
    german_table,
    in_words,
    ruled_table,
    totals_in_a_row,
)

HERE = Path(__file__).parent


def german_letter(invoice: Invoice) -> str:
    """Write a German letter in plain text."""
    lines = [
        f"  {line['quantity']} x {line['text']:<34}{german(line['amount_cents']):>12} €" for line in invoice["lines"]
    ]
    return "\n".join(
        [
            invoice["supplier"],
            *invoice["address"],
            "",
            "An:",
            *invoice["recipient"],
            "",
            f"Rechnungs-Nr.: {invoice['number']}",
            f"Datum: {dotted(day_of(invoice))}",
            "",
            "Wir berechnen Ihnen wie vereinbart:",
            "",
            *lines,
            "",
            f"Warenwert netto: {german(invoice['net_cents'])} €",
            f"Umsatzsteuer {invoice['tax_percent']} %: {german(invoice['tax_cents'])} €",
            f"Zu zahlender Betrag: {german(invoice['total_cents'])} €",
            "",
            f"Bei Zahlung bis 16.10.2026 gewähren wir 2 % Skonto: {german(round(invoice['total_cents'] * 0.98))} €",
            "",
        ]
    )


def plain_columns(invoice: Invoice) -> str:
    """Write a typewriter's table, no tax."""
    rows = [
        f"{line['text']:<36}{line['quantity']:>4}{english(line['unit_cents']):>12}{english(line['amount_cents']):>14}"
        for line in invoice["lines"]
    ]
    rule = "-" * 66
    head = f"{'DESCRIPTION':<36}{'QTY':>4}{'PRICE':>12}{'TOTAL':>14}"
    total = f"{'TOTAL EUR':<52}{english(invoice['total_cents']):>14}"
    return "\n".join(
        [
            f"{invoice['supplier']:<40}INVOICE {invoice['number']}",
            f"{invoice['address'][0]:<40}DATE {invoice['date']}",
            invoice["address"][1],
            "",
            f"BILL TO:  {invoice['recipient'][0]}",
            "",
            head,
            rule,
            *rows,
            rule,
            total,
            "",
            "No VAT: reverse charge.",
            "",
        ]
    )


def amount_below(invoice: Invoice) -> str:
    """Write each label on a line of its own, the value below it."""
    fields = [("Invoice number", invoice["number"]), ("Invoice date", in_words(day_of(invoice), MONTHS))]
    fields += [(line["text"], f"EUR {english(line['amount_cents'])}") for line in invoice["lines"]]
    fields += [("Sub-total", f"EUR {english(invoice['net_cents'])}")]
    fields += [(f"VAT ({invoice['tax_percent']}%)", f"EUR {english(invoice['tax_cents'])}")]
    fields += [("Total (incl. VAT)", f"EUR {english(invoice['total_cents'])}")]
    body = [text for field in fields for text in (*field, "")]
    return "\n".join(
        [invoice["supplier"], *invoice["address"], "", "Invoice", "", "Customer:", invoice["recipient"][0], "", *body]
    )


def english_prose(invoice: Invoice) -> str:
    """Write a letter whose total stands in a sentence."""
    day = day_of(invoice)
    items = [
        f"  - {line['text']} ({line['quantity']}): EUR {english(line['amount_cents'])}" for line in invoice["lines"]
    ]
    return "\n".join(
        [
            invoice["supplier"],
            *invoice["address"],
            "",
            f"Invoice no. {invoice['number']}",
            in_words(day, MONTHS),
            "",
            f"To: {invoice['recipient'][0]}",
            "",
            "For our services in October:",
            "",
            *items,
            "",
            f"The fees come to EUR {english(invoice['net_cents'])} before VAT.",
            f"VAT at {invoice['tax_percent']}% is EUR {english(invoice['tax_cents'])}.",
            f"Please pay the total amount of EUR {english(invoice['total_cents'])} by 22 November 2026.",
            "",
            "A late fee of EUR 40.00 may be charged after that day.",
            "",
        ]
    )


LAYOUTS: dict[str, Callable[[Invoice], Sheet | str]] = {
    layout.__name__: layout
    for layout in (
        *(german_table, ruled_table, carried_forward, german_carried, amount_due, credit_line),
        *(totals_in_a_row, boxed_total, german_letter, plain_columns, amount_below, english_prose),
    )
}


def require(holds: bool, where: object) -> None:
    """Stop when the truth contradicts itself."""
    if not holds:
        raise SystemExit(f"truth.json does not add up: {where}")


def check(truth: dict[str, Any]) -> None:
    """Check that the truth adds up, line by line and branch by branch."""
    sums: dict[str, int] = {"all": 0}
    for invoice in truth["invoices"]:
        for line in invoice["lines"]:
            require(line["quantity"] * line["unit_cents"] == line["amount_cents"], line)
        require(sum(line["amount_cents"] for line in invoice["lines"]) == invoice["net_cents"], invoice["file"])
        owed = invoice["net_cents"] + invoice["tax_cents"] - invoice["deposit_cents"]
        require(owed == invoice["total_cents"], invoice["file"])
        branch = invoice["file"].partition("/")[0]
        sums[branch] = sums.get(branch, 0) + owed
        sums["all"] += owed
    require(sums == truth["totals_cents"], sums)


def main() -> None:
    """Write every invoice below the folder given, by default this one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--into", type=Path, default=HERE)
    into: Path = parser.parse_args().into
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))
    check(truth)
    for invoice in truth["invoices"]:
        target = into / invoice["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        drawn = LAYOUTS[invoice["layout"]](invoice)
        content = drawn.encode() if isinstance(drawn, str) else bytes(drawn.output())
        target.write_bytes(content)


if __name__ == "__main__":
    main()
