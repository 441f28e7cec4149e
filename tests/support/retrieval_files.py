"""Files of every kind that retrieval reads, and of the kinds it must refuse, made on the spot."""

from __future__ import annotations

import io
import zipfile

import docx
import openpyxl
import pptx


def pdf(*pages: list[tuple[float, str]], title: str = "", encrypted: bool = False) -> bytes:
    """Return a PDF: for each page its lines with their type size, top down; a page may be empty."""
    objects: list[bytes] = []

    def add(body: str) -> int:
        objects.append(body.encode("latin-1"))
        return len(objects)

    font = add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    contents = [add(_stream(_drawn(lines))) for lines in pages]
    parent = len(objects) + len(pages) + 1
    resources = f"<< /Font << /F1 {font} 0 R >> >>"
    kids = [
        add(
            f"<< /Type /Page /Parent {parent} 0 R /MediaBox [0 0 595 842] "
            f"/Resources {resources} /Contents {content} 0 R >>"
        )
        for content in contents
    ]
    tree = add(f"<< /Type /Pages /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] /Count {len(kids)} >>")
    catalog = add(f"<< /Type /Catalog /Pages {tree} 0 R >>")
    information = add(f"<< /Title ({title}) >>")
    trailer = f"/Root {catalog} 0 R /Info {information} 0 R"
    if encrypted:
        secret = "<" + "41" * 32 + ">"
        lock = add(f"<< /Filter /Standard /V 1 /R 2 /O {secret} /U {secret} /P -44 >>")
        trailer += f" /Encrypt {lock} 0 R /ID [<{'42' * 16}> <{'42' * 16}>]"
    return _assembled(objects, trailer)


def _drawn(lines: list[tuple[float, str]]) -> str:
    drawn, y = [], 800.0
    for size, text in lines:
        y -= size * 1.2 if text else size * 2
        escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        drawn.append(f"BT /F1 {size} Tf 50 {y:.1f} Td ({escaped}) Tj ET")
    return "\n".join(drawn)


def _stream(content: str) -> str:
    return f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"


def _assembled(objects: list[bytes], trailer: str) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(f"trailer\n<< /Size {len(objects) + 1} {trailer} >>\nstartxref\n{table}\n%%EOF\n".encode())
    return out.getvalue()


def docx_file() -> bytes:
    """Return a DOCX with headings, a list and a table."""
    document = docx.Document()
    document.add_heading("Leave policy", level=1)
    document.add_paragraph("Everyone has thirty days of leave.")
    document.add_heading("Sick leave", level=2)
    document.add_paragraph("A doctor's note is needed from day three.", style="List Bullet")
    table = document.add_table(rows=0, cols=2)
    for cells in (("Kind", "Days"), ("Marriage", "5"), ("Moving house", "1")):
        row = table.add_row().cells
        row[0].text, row[1].text = cells
    return _saved(document)


def pptx_file() -> bytes:
    """Return a PPTX with a title, text, a table and notes on its second slide."""
    presentation = pptx.Presentation()
    first = presentation.slides.add_slide(presentation.slide_layouts[0])
    first.shapes.title.text = "Quarterly review"
    second = presentation.slides.add_slide(presentation.slide_layouts[1])
    second.shapes.title.text = "Revenue"
    second.placeholders[1].text_frame.text = "Revenue grew by twelve percent."
    table = second.shapes.add_table(2, 2, 0, 0, 100000, 100000).table
    for row, cells in enumerate((("Region", "Growth"), ("Asia", "20 %"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    second.notes_slide.notes_text_frame.text = "Mention the new office."
    return _saved(presentation)


def xlsx_file() -> bytes:
    """Return an XLSX with two sheets, one of them Chinese."""
    book = openpyxl.Workbook()
    rates = book.active
    rates.title = "Rates"
    rates.append(["City", "Limit", "Since"])
    rates.append(["Oslo", 210.5, None])
    stock = book.create_sheet("库存")
    stock.append(["名称", "数量"])
    stock.append(["显示器", 12])
    return _saved(book)


def zip_bomb_docx() -> bytes:
    """Return a DOCX of a few hundred kilobytes whose main part unpacks to 300 MB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(300):
                part.write(b"\0" * 2**20)
    return out.getvalue()


def email_file() -> bytes:
    """Return an e-mail with plain text, HTML and an attachment."""
    return _EMAIL.replace("\n", "\r\n").encode()


_EMAIL = """From: Ann <ann@example.com>
To: bob@example.com
Subject: =?utf-8?b?5pS+5YGH6YCa55+l?=
Date: Mon, 02 Mar 2026 10:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=utf-8

The office is closed on Friday.
--b
Content-Type: application/pdf; name="plan.pdf"
Content-Disposition: attachment; filename="plan.pdf"

x
--b--
"""


def _saved(document: object) -> bytes:
    out = io.BytesIO()
    document.save(out)  # type: ignore[attr-defined]
    return out.getvalue()
