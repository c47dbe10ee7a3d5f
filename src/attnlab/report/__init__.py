"""Reports of studies: collecting runs, statistics, significance tests, tables, figures and the page."""
