#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/text/internal/merge_table.h"
#include "lockstep/datasets/text/internal/vocabulary.h"
#include "lockstep/datasets/text/internal/word_cache.h"
#include "lockstep/datasets/text/internal/word_merger.h"

namespace lockstep {

/// The tokens that the merges of a word begin with.
enum class SymbolKind {
  kBytes,       ///< its bytes, each of which is a token
  kCharacters,  ///< its characters; the bytes of those that are no token, as tokens <0x00> to <0xFF>
};

/// The memory that encoding words needs. Used by one thread at a time.
struct WordScratch {
  WordCache cache;
  WordMerger merger;
  std::vector<uint32_t> symbols;

  void trim();
};

/// A vocabulary with the merges that make its tokens. Thread-safe.
class BytePairModel {
 public:
  struct Parts {
    SymbolKind symbols = SymbolKind::kBytes;
    Vocabulary vocabulary;  ///< of bytes, or for kCharacters of text
    std::vector<Merge> merges;
    std::array<uint32_t, 256> byte_ids = {};  ///< the tokens of single bytes
    bool ignores_merges = false;              ///< a word that is a token becomes that token
  };

  explicit BytePairModel(Parts parts);

  const Vocabulary& vocabulary() const { return parts_.vocabulary; }
  SymbolKind symbols() const { return parts_.symbols; }
  WordScratch make_scratch() const;

  uint32_t byte_id(char byte) const { return parts_.byte_ids[static_cast<uint8_t>(byte)]; }
  /// Appends the ids of a word.
  void append_word(std::string_view word, WordScratch& scratch, std::vector<uint32_t>& ids) const;

 private:
  void append_part(std::string_view part, WordScratch& scratch, std::vector<uint32_t>& ids) const;
  void begin_symbols(std::string_view part, std::vector<uint32_t>& symbols) const;

  Parts parts_;
  MergeTable merges_;
  bool cuts_before_marks_ = false;
};

}  // namespace lockstep
