#!/usr/bin/env python3
"""The peer of tokenize_job: the same documents with the Python package `tokenizers`, on one thread. Takes the same arguments and
prints the same line."""

import json
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # pylint: disable=wrong-import-position


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    documents = [part.decode() for part in pathlib.Path(sys.argv[2]).read_bytes().split(b"\0\n")[:-1]]
    num_bytes = sum(len(document.encode()) for document in documents)
    seconds = float(sys.argv[3])
    # The fast one leaves out where each token is in the text, as Lockstep does.
    num_tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(documents))
    rounds, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        tokenizer.encode_batch_fast(documents)
        rounds += 1
    taken = time.process_time() - begin
    print(json.dumps({"bytes_per_second": rounds * num_bytes / taken, "tokens": num_tokens}))


if __name__ == "__main__":
    main()
