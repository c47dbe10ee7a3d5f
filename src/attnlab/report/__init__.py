"""From run directories to statistics, tables and one page. Reads files; knows no model, imports no torch."""
