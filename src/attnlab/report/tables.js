// Sortable tables: a click on a heading sorts by that column, a second click reverses the order.
"use strict";

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const initial = heading.classList.contains("number") ? "descending" : "ascending";
      const reversed = initial === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === initial ? reversed : initial;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      table.tBodies[0].append(...sorted([...table.tBodies[0].rows], column, order === "descending"));
    });
  });
}

/** Return the rows sorted by a column; rows without a value come last in both orders. */
function sorted(rows, column, descending) {
  const key = (row) => {
    const cell = row.cells[column];
    return cell.classList.contains("number") ? Number(cell.dataset.value ?? NaN) : cell.textContent.trim();
  };
  const missing = (value) => value === "" || Number.isNaN(value);
  return rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const difference = typeof a === "number" ? a - b : a.localeCompare(b);
    return descending ? -difference : difference;
  });
}
