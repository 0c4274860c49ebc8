#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/text/tokenizer.h"

namespace lockstep {

/// Tokens of a ByteTokenizer besides the bytes.
///
/// Example:
///
///     ByteTokenizer tokenizer({.end_of_text = ""});  // 256 tokens
struct ByteTokenizerOptions {
  /// The text of the token with the id 256; if empty, there is none.
  std::string end_of_text = "<|endoftext|>";
};

/// A tokenizer without a file: each byte is a token, whose id is the byte's value.
///
/// Example:
///
///     ByteTokenizer tokenizer;
///     tokenizer.encode("Hi");        // 72, 105
///     tokenizer.vocabulary_size();   // 257
class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(const ByteTokenizerOptions& options = {});

  size_t vocabulary_size() const override { return 256 + special_tokens_.size(); }
  const std::vector<SpecialToken>& special_tokens() const override { return special_tokens_; }

 private:
  void append_ids(std::string_view text, const EncodeOptions& options,
                  std::vector<uint32_t>& ids) const override;
  std::string text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const override;

  std::vector<SpecialToken> special_tokens_;  // one or none
};

}  // namespace lockstep
