"""Networks in plain PyTorch, without configuration and without Lightning.

A sentence passes through `TokenEmbedding → Encoder → Memory → Bridge → Decoder(Attention) → Readout`, which
`attnlab.nn.seq2seq.Seq2Seq` holds. Every part receives finished parts and sizes as keyword arguments.
`attnlab.nn.fused` holds optional fast paths.
"""
