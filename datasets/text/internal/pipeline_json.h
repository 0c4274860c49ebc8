#pragma once

#include <vector>

#include "lockstep/datasets/text/internal/json_field.h"
#include "lockstep/datasets/text/internal/tokenizer_parts.h"

namespace lockstep {

/// Read the members of tokenizer.json around the model. They throw DataError naming the file, the field and
/// the value if a part is of a kind that is not supported.

std::vector<NormalizerStep> read_normalizer(const JsonField& normalizer);

struct PreTokenizerParts {
  std::vector<PreTokenizerStep> steps;
  bool is_byte_level = false;  ///< ends with the kind "ByteLevel"
};
PreTokenizerParts read_pre_tokenizer(const JsonField& pre_tokenizer);

struct TemplateParts {
  std::vector<uint32_t> ids_before;
  std::vector<uint32_t> ids_after;
};
TemplateParts read_post_processor(const JsonField& post_processor);

std::vector<DecoderStep> read_decoder(const JsonField& decoder, SymbolKind symbols);

}  // namespace lockstep
