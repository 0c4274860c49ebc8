#include "lockstep/datasets/tokens/internal/language_text.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace lockstep {
namespace {

/// Returns what stands between two words.
std::string_view gap_between(WordKind before, WordKind after) {
  switch (after) {
    case WordKind::kEndOfText:
    case WordKind::kStop:
    case WordKind::kClosing:
      return "";
    case WordKind::kEnding:
      // Apart from anything but a verb, it is no word of the language, but a model may write it.
      return before == WordKind::kVerb ? "" : " ";
    case WordKind::kItem:
      return before == WordKind::kItem ? ", " : " ";
    default:
      return before == WordKind::kEndOfText || before == WordKind::kOpening ? "" : " ";
  }
}

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

/// Returns the longest word that the text begins with. Endings are among them only if they follow a verb at
/// once, and are then the only ones.
std::optional<uint32_t> word_at(const std::vector<LanguageWord>& words, std::string_view text,
                                bool is_glued) {
  std::optional<uint32_t> found;
  for (uint32_t token = 0; token < words.size(); ++token) {
    const LanguageWord& word = words[token];
    if ((word.kind == WordKind::kEnding) != is_glued || !text.starts_with(word.text)) continue;
    const bool goes_on = text.size() > word.text.size() && is_letter(text[word.text.size()]);
    if (goes_on && is_letter(word.text.back()) && word.kind != WordKind::kVerb) continue;
    if (!found || words[*found].text.size() < word.text.size()) found = token;
  }
  return found;
}

}  // namespace

std::string language_text(const std::vector<LanguageWord>& words, std::span<const uint32_t> tokens) {
  std::string text;
  WordKind before = WordKind::kEndOfText;
  for (const uint32_t token : tokens) {
    if (token >= words.size())
      throw std::invalid_argument("[GeneratedLanguage] text: expected tokens below " +
                                  std::to_string(words.size()) + ", but got " + std::to_string(token));
    const LanguageWord& word = words[token];
    text += gap_between(before, word.kind);
    text += word.text;
    before = word.kind;
  }
  return text;
}

std::vector<uint32_t> language_tokens(const std::vector<LanguageWord>& words, std::string_view text) {
  std::vector<uint32_t> tokens;
  constexpr size_t kShown = 20;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == ',') {
      ++at;
      continue;
    }
    const bool is_glued = at > 0 && !tokens.empty() && words[tokens.back()].kind == WordKind::kVerb &&
                          is_letter(text[at]) && is_letter(text[at - 1]);
    const auto token = word_at(words, text.substr(at), is_glued);
    if (!token)
      throw std::invalid_argument(
          "[GeneratedLanguage] tokens: expected a word of the language at character " +
          std::to_string(at + 1) + ", but got '" + std::string(text.substr(at, kShown)) + "'");
    tokens.push_back(*token);
    at += words[*token].text.size();
  }
  return tokens;
}

}  // namespace lockstep
