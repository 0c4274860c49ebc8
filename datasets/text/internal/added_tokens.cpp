#include "lockstep/datasets/text/internal/added_tokens.h"

#include <algorithm>
#include <utility>

#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// The characters of words (UTS #18, annex C): those that are alphabetic, and marks, digits, connectors and
/// join controls. The ranges are letters in circles and squares, which are alphabetic but no letters.
constexpr std::string_view kWordCharacter =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189}])";

std::vector<AddedToken> with_normal_texts(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  for (AddedToken& token : tokens) {
    std::string buffer;
    token.normal_text = token.is_normalized
                            ? std::string(normalizer.apply(token.text, PieceStart::kText, buffer))
                            : token.text;
  }
  return tokens;
}

size_t without_spaces_at_end(std::string_view text) {
  while (!text.empty() && is_white_space(first_character(last_character(text))))
    text.remove_suffix(last_character(text).size());
  return text.size();
}

size_t spaces_at_begin(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty() && is_white_space(first_character(text)))
    text.remove_prefix(utf8_length(text.front()));
  return size - text.size();
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(with_normal_texts(std::move(tokens), normalizer)),
      original_(make_group(tokens_, false)),
      normalized_(make_group(tokens_, true)),
      word_character_(Pattern::of_regex(kWordCharacter)) {}

AddedTokens::Group AddedTokens::make_group(const std::vector<AddedToken>& tokens, bool is_normalized) {
  std::vector<std::string> texts;
  std::vector<size_t> indices;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].is_normalized != is_normalized) continue;
    texts.push_back(tokens[i].normal_text);
    indices.push_back(i);
  }
  return {.finder = TextFinder(texts), .tokens = std::move(indices)};
}

bool AddedTokens::is_within_word(std::string_view text, const TextFinder::Match& match,
                                 PatternMatcher& matcher) const {
  const auto is_of_word = [&](std::string_view character) {
    return matcher.find(word_character_, character, 0).has_value();
  };
  if (match.begin > 0 && is_of_word(last_character(text.substr(0, match.begin)))) return true;
  return match.end < text.size() && is_of_word(text.substr(match.end, utf8_length(text[match.end])));
}

void AddedTokens::split(const Group& group, std::string_view text, bool reads_special_tokens,
                        PatternMatcher& matcher, std::vector<TextPart>& parts) const {
  size_t done = 0;
  size_t from = 0;
  while (const auto match = group.finder.find(text, from)) {
    from = match->end;
    const AddedToken& token = tokens_[group.tokens[match->which]];
    if (token.is_special && !reads_special_tokens) continue;
    if (token.is_single_word && is_within_word(text, *match, matcher)) continue;
    size_t begin = match->begin;
    size_t end = match->end;
    // White space that the token before has taken is not scanned again, as a long run may hold many tokens.
    if (token.takes_spaces_before && done < begin)
      begin = done + without_spaces_at_end(text.substr(done, begin - done));
    if (token.takes_spaces_after) {
      end = std::max(end, done);
      end += spaces_at_begin(text.substr(end));
    }
    if (done < begin) parts.push_back({.begin = done, .end = begin, .token = std::nullopt});
    parts.push_back({.begin = begin, .end = end, .token = token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({.begin = done, .end = text.size(), .token = std::nullopt});
}

}  // namespace lockstep
