#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/datasets/text/internal/pre_tokenizer.h"
#include "lockstep/datasets/text/internal/replace_step.h"

namespace lockstep {

/// Unicode's normalization forms (UAX #15).
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

/// Puts `text` before a piece that is not empty.
struct PrependStep {
  std::string text;
};

using NormalizerStep = std::variant<UnicodeForm, PrependStep, ReplaceStep>;

/// Rewrites text before it is cut into words. Thread-safe.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  /// Returns the rewritten text, in `buffer` unless it is `text` itself. `text` is valid UTF-8. Throws
  /// DataError if the text becomes too long (RewrittenSize).
  std::string_view apply(std::string_view text, PieceStart start, std::string& buffer) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace lockstep
