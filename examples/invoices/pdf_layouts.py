"""Ways of writing an invoice as a PDF, with fpdf2, and how amounts and dates are spelt. Called by `generate.py`."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from fpdf import FPDF

Invoice = dict[str, Any]
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
MONATE = (
    *("Januar", "Februar", "März", "April", "Mai", "Juni"),
    *("Juli", "August", "September", "Oktober", "November", "Dezember"),
)


def english(cents: int, thousands: str = ",") -> str:
    """Return an amount as 1,234.56."""
    sign = "-" if cents < 0 else ""
    whole = f"{abs(cents) // 100:,}".replace(",", thousands)
    return f"{sign}{whole}.{abs(cents) % 100:02}"


def german(cents: int) -> str:
    """Return an amount as 1.234,56."""
    return english(cents, "_").replace(".", ",").replace("_", ".")


def day_of(invoice: Invoice) -> date:
    """Return the invoice's date."""
    return date.fromisoformat(invoice["date"])


def dotted(day: date) -> str:
    """Return a date as 02.10.2026."""
    return day.strftime("%d.%m.%Y")


def in_words(day: date, months: tuple[str, ...], point: str = "") -> str:
    """Return a date as 2 October 2026."""
    return f"{day.day}{point} {months[day.month - 1]} {day.year}"


class Sheet(FPDF):
    """A page with the few ways of writing that the layouts need. Sizes in millimetres."""

    def __init__(self, invoice: Invoice) -> None:
        super().__init__(format="A4")
        self.set_creation_date(datetime(2026, 11, 1, tzinfo=UTC))
        self.set_compression(False)
        self.core_fonts_encoding = "windows-1252"
        self.set_title(f"Invoice {invoice['number']}")
        self.set_auto_page_break(False)
        self.set_margins(20, 18)
        self.add_page()
        self.set_font("Helvetica", size=10)

    def line_of(self, *texts: str, bold: bool = False, size: float = 10) -> None:
        """Write lines of text from the left margin."""
        self.set_font(style="B" if bold else "", size=size)
        for text in texts:
            self.cell(0, size * 0.5, text, new_x="LMARGIN", new_y="NEXT")
        self.set_font(style="", size=10)

    def row(
        self, widths: list[int], cells: list[str], align: str, *, border: int | str = 0, bold: bool = False
    ) -> None:
        """Write one table row; `align` has a letter a column."""
        self.set_font(style="B" if bold else "")
        for width, cell, where in zip(widths, cells, align, strict=True):
            self.cell(width, 6, cell, border=border, align=where)
        self.ln(6)
        self.set_font(style="")

    def sum_line(self, label: str, amount: str, *, bold: bool = False) -> None:
        """Write a label and an amount at the right margin."""
        self.set_x(105)
        self.set_font(style="B" if bold else "")
        self.cell(50, 6, label)
        self.cell(35, 6, amount, align="R", new_x="LMARGIN", new_y="NEXT")
        self.set_font(style="")


def german_table(invoice: Invoice) -> Sheet:
    """Letterhead, table of positions, Zwischensumme, Mehrwertsteuer, Gesamtbetrag."""
    sheet = Sheet(invoice)
    sheet.line_of(invoice["supplier"], bold=True, size=16)
    sheet.line_of(" - ".join(invoice["address"]), "")
    sheet.line_of("Rechnung an:", *invoice["recipient"], "")
    sheet.line_of(f"Rechnungsnummer: {invoice['number']}", f"Rechnungsdatum: {dotted(day_of(invoice))}")
    sheet.line_of("Kundennummer: 20118", "Lieferdatum: 30.09.2026", "")
    widths = [12, 80, 20, 29, 29]
    sheet.row(widths, ["Pos.", "Bezeichnung", "Menge", "Einzelpreis", "Gesamt"], "LLRRR", border="B", bold=True)
    for number, line in enumerate(invoice["lines"], start=1):
        amounts = [german(line["unit_cents"]), german(line["amount_cents"])]
        sheet.row(widths, [str(number), line["text"], str(line["quantity"]), *amounts], "LLRRR")
    sheet.ln(4)
    sheet.sum_line("Zwischensumme netto", german(invoice["net_cents"]))
    sheet.sum_line(f"zzgl. {invoice['tax_percent']} % MwSt.", german(invoice["tax_cents"]))
    sheet.sum_line("Gesamtbetrag EUR", german(invoice["total_cents"]), bold=True)
    sheet.ln(8)
    sheet.line_of("Zahlbar innerhalb von 14 Tagen ohne Abzug.")
    return sheet


def ruled_table(invoice: Invoice) -> Sheet:
    """Title at the top, two columns of addresses, a ruled table that holds the totals as well."""
    sheet = Sheet(invoice)
    sheet.line_of("INVOICE", "", bold=True, size=20)
    left, right = [invoice["supplier"], *invoice["address"]], invoice["recipient"]
    sheet.row([85, 85], ["From:", "Bill to:"], "LL", bold=True)
    for one, other in zip(left, right, strict=False):
        sheet.row([85, 85], [one, other], "LL")
    sheet.ln(4)
    sheet.row([57, 57, 56], ["Invoice No.", "Invoice date", "Due date"], "CCC", border=1, bold=True)
    dates = [in_words(day_of(invoice), MONTHS), "4 November 2026"]
    sheet.row([57, 57, 56], [invoice["number"], *dates], "CCC", border=1)
    sheet.ln(6)
    widths = [90, 20, 30, 30]
    sheet.row(widths, ["Description", "Qty", "Unit price", "Line total"], "LRRR", border=1, bold=True)
    for line in invoice["lines"]:
        amounts = [english(line["unit_cents"]), english(line["amount_cents"])]
        sheet.row(widths, [line["text"], str(line["quantity"]), *amounts], "LRRR", border=1)
    totals = [
        ("Subtotal", "net_cents"),
        (f"VAT {invoice['tax_percent']}%", "tax_cents"),
        ("Grand total", "total_cents"),
    ]
    for label, key in totals:
        sheet.row([140, 30], [label, f"€{english(invoice[key])}"], "RR", border=1, bold=key == "total_cents")
    return sheet


def carried(invoice: Invoice, words: dict[str, str], amount: Callable[[int], str], when: str) -> Sheet:
    """Several pages; each ends with the sum so far and the next begins with it."""
    sheet = Sheet(invoice)
    sheet.line_of(invoice["supplier"], bold=True, size=14)
    sheet.line_of(*invoice["address"], "", words["to"], *invoice["recipient"], "")
    sheet.line_of(f"{words['number']} {invoice['number']}", f"{words['date']} {when}", "")
    widths, running, per_page = [90, 20, 30, 30], 0, 18
    for index, line in enumerate(invoice["lines"]):
        if index % per_page == 0:
            if index:
                sheet.sum_line(words["forward"], amount(running), bold=True)
                sheet.line_of("", f"{words['page']} {index // per_page}")
                sheet.add_page()
                sheet.line_of(f"{invoice['supplier']}    {words['number']} {invoice['number']}", "")
                sheet.sum_line(words["brought"], amount(running), bold=True)
            sheet.row(widths, words["head"].split("|"), "LRRR", border="TB", bold=True)
        running += line["amount_cents"]
        amounts = [amount(line["unit_cents"]), amount(line["amount_cents"])]
        sheet.row(widths, [line["text"], str(line["quantity"]), *amounts], "LRRR")
    sheet.ln(4)
    sheet.sum_line(words["net"], amount(invoice["net_cents"]))
    sheet.sum_line(words["tax"].format(invoice["tax_percent"]), amount(invoice["tax_cents"]))
    sheet.sum_line(words["total"], amount(invoice["total_cents"]), bold=True)
    return sheet


def carried_forward(invoice: Invoice) -> Sheet:
    """Carry English subtotals over the pages."""
    words = {
        "to": "Invoice to:",
        "number": "Invoice number:",
        "date": "Date of issue:",
        "forward": "Carried forward",
        "brought": "Brought forward",
        "page": "Page",
        "head": "Item|Qty|Price|Amount",
        "net": "Total excl. VAT",
        "tax": "VAT {} %",
        "total": "Invoice total EUR",
    }
    return carried(invoice, words, english, day_of(invoice).isoformat())


def german_carried(invoice: Invoice) -> Sheet:
    """Carry German subtotals over the pages."""
    words = {
        "to": "Rechnung an:",
        "number": "Rechnung Nr.",
        "date": "Datum:",
        "forward": "Übertrag",
        "brought": "Übertrag von Seite 1",
        "page": "Seite",
        "head": "Artikel|Menge|Preis|Betrag",
        "net": "Nettosumme",
        "tax": "{} % USt.",
        "total": "Rechnungsbetrag in EUR",
    }
    return carried(invoice, words, german, in_words(day_of(invoice), MONATE, "."))


def amount_due(invoice: Invoice) -> Sheet:
    """Amount due below a deposit: neither the sum before the deposit nor the deposit is the answer."""
    sheet = Sheet(invoice)
    sheet.set_fill_color(225, 235, 240)
    sheet.rect(0, 0, 210, 34, style="F")
    sheet.line_of(invoice["supplier"], bold=True, size=18)
    sheet.line_of(", ".join(invoice["address"]), "", "", "")
    sheet.line_of(f"Invoice # {invoice['number']}", f"Date: {day_of(invoice).strftime('%b %d, %Y')}", "")
    sheet.line_of(f"Customer: {invoice['recipient'][0]}", "")
    for line in invoice["lines"]:
        sheet.line_of(line["text"], bold=True)
        shown = f"{line['quantity']} x {english(line['unit_cents'])}"
        sheet.row([120, 50], [shown, english(line["amount_cents"])], "LR", border="B")
    sheet.ln(6)
    sheet.sum_line("Subtotal", f"EUR {english(invoice['net_cents'])}")
    sheet.sum_line(f"VAT at {invoice['tax_percent']}%", f"EUR {english(invoice['tax_cents'])}")
    sheet.sum_line("Deposit received 1 September 2026", f"EUR {english(-invoice['deposit_cents'])}")
    sheet.sum_line("Amount due", f"EUR {english(invoice['total_cents'])}", bold=True)
    sheet.line_of("", "Deposits for 2027 events: EUR 500.00 secures your date.", size=8)
    return sheet


def credit_line(invoice: Invoice) -> Sheet:
    """A position that takes away, and the totals at the left."""
    sheet = Sheet(invoice)
    sheet.line_of("TAX INVOICE", bold=True, size=12)
    sheet.line_of(f"Supplier: {invoice['supplier']}", *invoice["address"], "")
    sheet.line_of(f"Sold to: {invoice['recipient'][0]}", "")
    sheet.line_of(f"Invoice no: {invoice['number']}", f"Issued: {day_of(invoice).strftime('%d/%m/%Y')}")
    sheet.line_of(f"Tax point: {in_words(day_of(invoice), MONTHS)}", "")
    for line in invoice["lines"]:
        cells = [str(line["quantity"]), line["text"], english(line["amount_cents"])]
        sheet.row([15, 120, 35], cells, "RLR")
    sheet.ln(5)
    sheet.line_of(f"Net amount: {english(invoice['net_cents'])} EUR")
    sheet.line_of(f"VAT {invoice['tax_percent']}%: {english(invoice['tax_cents'])} EUR")
    sheet.line_of(f"Total due: {english(invoice['total_cents'])} EUR", bold=True, size=13)
    return sheet


def totals_in_a_row(invoice: Invoice) -> Sheet:
    """A small sender line over the address window, and the totals side by side below their heads."""
    sheet = Sheet(invoice)
    sheet.ln(20)
    sheet.line_of(" · ".join([invoice["supplier"], *invoice["address"]]), size=7)
    sheet.line_of(*invoice["recipient"], "", "")
    sheet.line_of(f"Rechnung {invoice['number']}", bold=True, size=15)
    sheet.line_of(f"Mainz, den {in_words(day_of(invoice), MONATE, '.')}", "")
    for line in invoice["lines"]:
        text = f"{line['quantity']} Stück {line['text']} zu je {german(line['unit_cents'])}"
        sheet.row([130, 40], [text, german(line["amount_cents"])], "LR")
    sheet.ln(8)
    heads = ["Netto", f"MwSt. {invoice['tax_percent']} %", "Gesamtsumme"]
    sheet.row([55, 55, 60], heads, "RRR", border="B")
    amounts = [f"{german(invoice[key])} €" for key in ("net_cents", "tax_cents", "total_cents")]
    sheet.row([55, 55, 60], amounts, "RRR", bold=True)
    return sheet


def boxed_total(invoice: Invoice) -> Sheet:
    """The total in a box above the positions, thousands kept apart by an apostrophe, the supplier at the right."""
    sheet = Sheet(invoice)
    for text in [invoice["supplier"], *invoice["address"]]:
        sheet.cell(0, 5, text, align="R", new_x="LMARGIN", new_y="NEXT")
    sheet.line_of("", "Invoice", bold=True, size=18)
    sheet.row([45, 60], ["Invoice number", invoice["number"]], "LL")
    sheet.row([45, 60], ["Invoice date", day_of(invoice).strftime("%B %d, %Y")], "LL")
    sheet.row([45, 60], ["Order number", "PO-77120"], "LL")
    sheet.row(
        [45, 60], ["Total amount payable", f"EUR {english(invoice['total_cents'], chr(39))}"], "LL", border=1, bold=True
    )
    sheet.ln(3)
    sheet.line_of("Bill to:", *invoice["recipient"], "")
    for line in invoice["lines"]:
        amounts = [english(line["unit_cents"], "'"), english(line["amount_cents"], "'")]
        sheet.row([80, 20, 35, 35], [line["text"], str(line["quantity"]), *amounts], "LRRR")
    sheet.ln(3)
    sheet.sum_line("Net", english(invoice["net_cents"], "'"))
    sheet.sum_line(f"IVA / VAT {invoice['tax_percent']} %", english(invoice["tax_cents"], "'"))
    return sheet
