"""To and from other libraries: Hugging Face checkpoints, SentencePiece vocabularies, ONNX."""
