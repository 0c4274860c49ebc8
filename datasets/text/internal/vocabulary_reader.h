#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/text/internal/byte_pair_model.h"
#include "lockstep/datasets/text/internal/json_field.h"

namespace lockstep {

/// Makes the vocabulary and the merges of a model, as files spell them. Functions throw DataError naming the
/// file and the field.
class VocabularyReader {
 public:
  /// Reads an object of tokens with their ids.
  VocabularyReader(const JsonField& vocabulary, SymbolKind symbols);

  /// Adds the merge of two tokens; `file` and `field` say where it is written.
  void add_merge(const std::string& file, const std::string& field, std::string_view left,
                 std::string_view right);
  /// As above, of two tokens with a space between them.
  void add_merge(const std::string& file, const std::string& field, std::string_view pair);

  BytePairModel::Parts take(bool ignores_merges);

 private:
  /// Returns the text by which the vocabulary finds a token of the file, or nothing if a byte-level token has
  /// a character outside the alphabet of bytes.
  std::optional<std::string> stored(std::string_view token) const;
  uint32_t id_of(const std::string& file, const std::string& field, std::string_view token) const;
  void find_bytes(const JsonField& vocabulary);

  BytePairModel::Parts parts_;
};

}  // namespace lockstep
