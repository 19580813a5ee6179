from .data import TokenStream, build_corpus
from .model import Config, Decoder
from .tokenizer import BPE

__all__ = ["BPE", "Config", "Decoder", "TokenStream", "build_corpus"]
