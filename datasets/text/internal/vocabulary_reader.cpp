#include "lockstep/datasets/text/internal/vocabulary_reader.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/internal/byte_alphabet.h"
#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// The token of a byte, as files spell it.
std::string byte_token(uint8_t byte, SymbolKind symbols) {
  std::string token;
  if (symbols == SymbolKind::kBytes) {
    append_utf8(character_of_byte(byte), token);
    return token;
  }
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

}  // namespace

VocabularyReader::VocabularyReader(const JsonField& vocabulary, SymbolKind symbols) {
  parts_.symbols = symbols;
  if (!vocabulary.is_object() || vocabulary.size() == 0)
    vocabulary.refuse("an object of tokens and their ids");
  for (const auto& [token, json] : vocabulary.json().items()) {
    const JsonField value = vocabulary.member(token);
    const uint32_t id = value.id();
    const auto text = stored(token);
    if (!(text ? parts_.vocabulary.add(*text, id) : parts_.vocabulary.add_hidden(token, id)))
      value.refuse("an id that no other token has");
  }
  find_bytes(vocabulary);
}

std::optional<std::string> VocabularyReader::stored(std::string_view token) const {
  if (parts_.symbols == SymbolKind::kCharacters) return std::string(token);
  return bytes_of_token(token);
}

void VocabularyReader::find_bytes(const JsonField& vocabulary) {
  for (size_t byte = 0; byte < parts_.byte_ids.size(); ++byte) {
    const std::string token = byte_token(static_cast<uint8_t>(byte), parts_.symbols);
    const auto text = stored(token);
    const auto id = text ? parts_.vocabulary.find(*text) : std::nullopt;
    if (!id) {
      vocabulary.refuse("a token for each of the 256 bytes",
                        "none for the byte " + std::to_string(byte) + " (" + shown_text(token) + ")");
    }
    parts_.byte_ids[byte] = *id;
  }
}

uint32_t VocabularyReader::id_of(const std::string& file, const std::string& field,
                                 std::string_view token) const {
  const auto text = stored(token);
  const auto id = text ? parts_.vocabulary.find(*text) : std::nullopt;
  if (!id) throw DataError(file, field, "tokens of the vocabulary", shown_text(token));
  return *id;
}

void VocabularyReader::add_merge(const std::string& file, const std::string& field, std::string_view left,
                                 std::string_view right) {
  const uint32_t left_id = id_of(file, field, left);
  const uint32_t right_id = id_of(file, field, right);
  const uint32_t result = id_of(file, field, std::string(left).append(right));
  if (left.empty() || right.empty()) throw DataError(file, field, "two tokens", "an empty one");
  parts_.merges.push_back({.left = left_id, .right = right_id, .result = result});
}

void VocabularyReader::add_merge(const std::string& file, const std::string& field, std::string_view pair) {
  const size_t space = pair.find(' ');
  if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos)
    throw DataError(file, field, "two tokens with a space between them", shown_text(pair));
  add_merge(file, field, pair.substr(0, space), pair.substr(space + 1));
}

BytePairModel::Parts VocabularyReader::take(bool ignores_merges) {
  parts_.ignores_merges = ignores_merges;
  return std::move(parts_);
}

}  // namespace lockstep
