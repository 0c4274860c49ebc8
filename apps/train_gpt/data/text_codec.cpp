#include "lockstep/apps/train_gpt/data/text_codec.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <stdexcept>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

std::vector<int64_t> widened(const std::vector<uint32_t>& ids) {
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      throw UsageError(fmt::format(
          "--sample: expected ids of tokens, as there is no --tokenizer for these token files, but got '{}'",
          word));
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

std::vector<int64_t> TextCodec::tokens(const std::string& text) const {
  std::vector<int64_t> tokens;
  if (language_) {
    tokens.push_back(GeneratedLanguage::end_of_text());
    try {
      for (const uint32_t id : language_->tokens(text)) tokens.push_back(id);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("--sample: expected words of the generated language: {}", error.what()));
    }
    return tokens;
  }
  if (!text.empty())
    return tokenizer_ ? widened(tokenizer_->encode(text, {.reads_special_tokens = false})) : parse_ids(text);
  if (const auto end = end_of_text()) return {*end};
  return tokenizer_ ? widened(tokenizer_->encode("\n")) : std::vector<int64_t>{0};
}

std::string TextCodec::text(std::span<const int64_t> tokens) const {
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  if (language_) return language_->text(ids);
  std::string text;
  if (!tokenizer_) {
    for (const uint32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }
  try {
    return tokenizer_->decode(ids);
  } catch (const std::invalid_argument&) {
    // The model's vocabulary may be larger than the tokenizer's.
    for (const uint32_t id : ids) {
      try {
        text += tokenizer_->decode(std::vector<uint32_t>{id});
      } catch (const std::invalid_argument&) {
        text += fmt::format("<{}>", id);
      }
    }
    return text;
  }
}

std::optional<int64_t> TextCodec::end_of_text() const {
  if (language_) return GeneratedLanguage::end_of_text();
  if (tokenizer_ == nullptr) return std::nullopt;
  const auto end = tokenizer_->end_of_text();
  return end ? std::optional<int64_t>(*end) : std::nullopt;
}

}  // namespace lockstep::apps
