"""Heat maps, curves and reports of studies.

Training uses the modules of figures alone, which import neither the statistics nor the tables: `heat_map`,
`heat_map_figure`, `curves`, `files`, `style`, `terminal`, `text` and `html`. The others read run directories.
"""
