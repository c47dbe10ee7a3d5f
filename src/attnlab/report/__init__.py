"""Tables, figures and the HTML page of a study. Reads run directories; imports no torch."""
