#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/text/internal/normalizer.h"
#include "lockstep/datasets/text/internal/pattern.h"
#include "lockstep/datasets/text/internal/text_finder.h"

namespace lockstep {

/// A token that is found in a text before the text is cut into words.
struct AddedToken {
  std::string text;
  uint32_t id = 0;
  bool is_special = false;
  bool is_single_word = false;  ///< not within a word
  bool takes_spaces_before = false;
  bool takes_spaces_after = false;
  bool is_normalized = false;  ///< found in the normalized text instead of the original one
  std::string normal_text;     ///< its text as it is found; set by AddedTokens
};

/// A part of a text: a token, or text without one.
struct TextPart {
  size_t begin = 0;
  size_t end = 0;
  std::optional<uint32_t> token;
};

/// Finds added tokens in texts. Thread-safe.
class AddedTokens {
 public:
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

  /// Appends the parts of an original text, or of a normalized one, to `parts`. Finds special
  /// tokens only if `reads_special_tokens` is true.
  void split_original(std::string_view text, bool reads_special_tokens, PatternMatcher& matcher,
                      std::vector<TextPart>& parts) const {
    split(original_, text, reads_special_tokens, matcher, parts);
  }
  void split_normalized(std::string_view text, bool reads_special_tokens, PatternMatcher& matcher,
                        std::vector<TextPart>& parts) const {
    split(normalized_, text, reads_special_tokens, matcher, parts);
  }

 private:
  struct Group {
    TextFinder finder;
    std::vector<size_t> tokens;  // their places in tokens_, by TextFinder::Match::which
  };

  static Group make_group(const std::vector<AddedToken>& tokens, bool is_normalized);
  void split(const Group& group, std::string_view text, bool reads_special_tokens, PatternMatcher& matcher,
             std::vector<TextPart>& parts) const;
  bool is_within_word(std::string_view text, const TextFinder::Match& match, PatternMatcher& matcher) const;

  std::vector<AddedToken> tokens_;
  Group original_;
  Group normalized_;
  Pattern word_character_;
};

}  // namespace lockstep
