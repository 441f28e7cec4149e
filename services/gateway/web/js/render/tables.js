// Tables that ingest wrote as lines of "header: value; header: value" become Markdown tables again, to be read as tables.

const FEWEST_ROWS = 2;

/** Returns the text with each run of such lines as a Markdown table; everything else stays as it is. */
export function restoreTables(text) {
  const made = [];
  let rows = [];
  const close = () => {
    if (rows.length >= FEWEST_ROWS) made.push("", ...asTable(rows), "");
    else made.push(...rows.map((row) => row.line));
    rows = [];
  };
  for (const line of text.split("\n")) {
    const row = readRow(line);
    if (row && rows.length > 0 && rows[0].key !== row.key) close();
    if (row) rows.push(row);
    else {
      close();
      made.push(line);
    }
  }
  close();
  return made.join("\n");
}

/** A line of at least two cells, the first of which may have no header: its headers, its values, and a key of the headers. */
function readRow(line) {
  const cells = line.split(/;\s+/).map((cell) => /^([^:\uff1a|]{1,60}): (.*)$/.exec(cell) ?? [cell, "", cell]);
  if (cells.length < 2 || line.includes("|") || cells.slice(1).some((cell) => cell[1] === "")) return null;
  const headers = cells.map((cell) => cell[1].trim());
  return { line, headers, values: cells.map((cell) => cell[2].trim()), key: JSON.stringify(headers) };
}

function asTable(rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(rows[0].headers), line(rows[0].headers.map(() => "---")), ...rows.map((row) => line(row.values))];
}
