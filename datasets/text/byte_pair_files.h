#pragma once

#include <string>

namespace lockstep {

/// The two files of a tokenizer like GPT-2's.
///
/// Example:
///
///     BytePairTokenizer tokenizer(BytePairFiles{.vocabulary = "encoder.json", .merges = "vocab.bpe"});
struct BytePairFiles {
  std::string vocabulary;  ///< encoder.json or vocab.json: maps each token to its id
  std::string merges;      ///< vocab.bpe or merges.txt: two tokens in each line
};

}  // namespace lockstep
