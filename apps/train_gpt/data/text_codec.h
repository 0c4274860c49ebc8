#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/datasets/text/tokenizer.h"
#include "lockstep/datasets/tokens/generated_language.h"

namespace lockstep::apps {

/// Turns the tokens of samples into text for people, and text into tokens. Without a tokenizer, the text is
/// the ids with spaces between them. Thread-safe; copies share the tokenizer.
class TextCodec {
 public:
  TextCodec() = default;
  explicit TextCodec(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  explicit TextCodec(GeneratedLanguage language) : language_(std::move(language)) {}

  /// Returns the tokens that a model continues for `text`; for an empty text, what begins a document. Throws
  /// UsageError naming --sample if the text has words that the language does not have, or is no list of ids.
  std::vector<int64_t> tokens(const std::string& text) const;
  /// Returns the text of tokens. Ids without a token become their number in angle brackets.
  std::string text(std::span<const int64_t> tokens) const;
  /// Returns the token that ends a document, if there is one.
  std::optional<int64_t> end_of_text() const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<GeneratedLanguage> language_;
};

}  // namespace lockstep::apps
