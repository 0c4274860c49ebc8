#include "lockstep/datasets/text/internal/byte_pair_model.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/datasets/text/internal/byte_hash.h"
#include "lockstep/datasets/text/internal/scratch_pool.h"
#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// U+2581, which stands for a space in vocabularies of characters.
constexpr std::string_view kMark = "\xE2\x96\x81";

/// Returns the place of the first mark that follows another character, from `from` on.
size_t find_mark_in_word(std::string_view text, size_t from) {
  for (size_t at = text.find(kMark, from); at != std::string_view::npos;
       at = text.find(kMark, at + kMark.size())) {
    if (at > 0 && !text.substr(0, at).ends_with(kMark)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

void WordScratch::trim() {
  merger.trim();
  release_if_large(symbols);
}

BytePairModel::BytePairModel(Parts parts) : parts_(std::move(parts)), merges_(parts_.merges) {
  // Some tokenizers merge a whole text as one word. If no merge makes a token with a space inside, no merge
  // crosses the beginning of a word either: the words can be merged one by one, and remembered. A mark that
  // is no token would be merged as bytes, which the texts of tokens do not show.
  cuts_before_marks_ =
      parts_.symbols == SymbolKind::kCharacters && !parts_.ignores_merges && parts_.vocabulary.find(kMark) &&
      std::none_of(parts_.merges.begin(), parts_.merges.end(), [&](const Merge& merge) {
        return find_mark_in_word(parts_.vocabulary.token(merge.result), 0) != std::string_view::npos;
      });
  parts_.merges = {};
}

WordScratch BytePairModel::make_scratch() const {
  // 2 MiB, which fit the second level of most processors' caches; less for the vocabularies of tests.
  constexpr size_t kMaxWords = size_t{1} << 15;
  return {.cache = WordCache(std::min(std::bit_ceil(parts_.vocabulary.size()), kMaxWords))};
}

void BytePairModel::append_word(std::string_view word, WordScratch& scratch,
                                std::vector<uint32_t>& ids) const {
  if (cuts_before_marks_) {
    for (size_t at = find_mark_in_word(word, 1); at != std::string_view::npos;
         at = find_mark_in_word(word, 1)) {
      append_part(word.substr(0, at), scratch, ids);
      word.remove_prefix(at);
    }
  }
  append_part(word, scratch, ids);
}

void BytePairModel::append_part(std::string_view part, WordScratch& scratch,
                                std::vector<uint32_t>& ids) const {
  const uint64_t hash = hash_of_bytes(part);
  const auto known = scratch.cache.find(part, hash);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto whole = parts_.ignores_merges ? parts_.vocabulary.find(part) : std::nullopt;
  if (whole) {
    symbols.push_back(*whole);
  } else {
    begin_symbols(part, symbols);
    scratch.merger.merge(merges_, symbols);
  }
  scratch.cache.put(part, hash, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BytePairModel::begin_symbols(std::string_view part, std::vector<uint32_t>& symbols) const {
  const auto add_bytes = [&](std::string_view bytes) {
    for (const char byte : bytes) symbols.push_back(byte_id(byte));
  };
  if (parts_.symbols == SymbolKind::kBytes) return add_bytes(part);
  while (!part.empty()) {
    const std::string_view character = part.substr(0, utf8_length(part.front()));
    if (const auto id = parts_.vocabulary.find(character)) {
      symbols.push_back(*id);
    } else {
      add_bytes(character);
    }
    part.remove_prefix(character.size());
  }
}

}  // namespace lockstep
