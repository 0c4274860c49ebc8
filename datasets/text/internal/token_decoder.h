#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/datasets/text/internal/replace_step.h"

namespace lockstep {

/// Tokens <0x00> to <0xFF> become their bytes.
struct ByteTokensStep {};
/// All tokens become one.
struct FuseStep {};
/// Removes up to so many of a character from both ends of each token.
struct StripStep {
  std::string character;
  size_t from_begin = 0;
  size_t from_end = 0;
};
/// Writes `mark` as a space, and removes it from the first token.
struct MarksStep {
  std::string mark;
  bool removes_first = true;
};

using DecoderStep = std::variant<ReplaceStep, ByteTokensStep, FuseStep, StripStep, MarksStep>;

/// Makes text of the tokens of a vocabulary of characters, by steps that each rewrite the list of tokens.
/// Thread-safe.
class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  /// Throws DataError if the text becomes too long (RewrittenSize).
  std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace lockstep
