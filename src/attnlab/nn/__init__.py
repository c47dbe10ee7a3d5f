"""Networks in plain PyTorch, without configuration and without Lightning.

A sentence passes through `TokenEmbedding → Encoder → Memory → Bridge → Decoder(Attention) → Readout`, which
`attnlab.nn.seq2seq.Seq2Seq` contains. Every part receives other modules and sizes as keyword arguments.
`attnlab.fast` makes them fast.
"""
