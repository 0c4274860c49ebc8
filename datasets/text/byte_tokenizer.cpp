#include "lockstep/datasets/text/byte_tokenizer.h"

#include <stdexcept>

namespace lockstep {

ByteTokenizer::ByteTokenizer(const ByteTokenizerOptions& options) {
  if (!options.end_of_text.empty()) special_tokens_.push_back({.text = options.end_of_text, .id = 256});
}

void ByteTokenizer::append_ids(std::string_view text, const EncodeOptions& options,
                               std::vector<uint32_t>& ids) const {
  const auto append = [&](std::string_view part) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part.data());
    ids.insert(ids.end(), bytes, bytes + part.size());
  };
  if (options.reads_special_tokens && !special_tokens_.empty()) {
    const SpecialToken& token = special_tokens_.front();
    for (size_t at = text.find(token.text); at != std::string_view::npos; at = text.find(token.text)) {
      append(text.substr(0, at));
      ids.push_back(token.id);
      text.remove_prefix(at + token.text.size());
    }
  }
  append(text);
}

std::string ByteTokenizer::text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const {
  std::string text;
  text.reserve(ids.size());
  for (const uint32_t id : ids) {
    if (id >= vocabulary_size()) {
      throw std::invalid_argument("[ByteTokenizer] expected ids below " + std::to_string(vocabulary_size()) +
                                  ", but got " + std::to_string(id));
    }
    if (id < 256) {
      text.push_back(static_cast<char>(id));
    } else if (!options.skips_special_tokens) {
      text += special_tokens_.front().text;
    }
  }
  return text;
}

}  // namespace lockstep
