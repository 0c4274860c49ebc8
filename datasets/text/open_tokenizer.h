#pragma once

#include <memory>
#include <string>

#include "lockstep/datasets/text/tokenizer.h"

namespace lockstep {

/// Opens the tokenizer that a flag or a setting names:
///   - "bytes": a ByteTokenizer;
///   - a file vocab.bpe with the encoder.json beside it, or merges.txt with the vocab.json beside it;
///   - another file: a tokenizer.json of whatever name;
///   - a folder: its tokenizer.json, else its vocab.json and merges.txt, else its encoder.json and vocab.bpe.
/// Throws DataError naming the file or folder if it cannot be used. To open a folder named "bytes", write
/// "./bytes".
///
/// Example:
///
///     std::unique_ptr<Tokenizer> tokenizer = open_tokenizer("models/qwen2");
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

}  // namespace lockstep
