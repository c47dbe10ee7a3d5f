"""The lesson on attention: the page that trains in a browser, and the checks of the exercises."""
