#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/datasets/text/internal/added_tokens.h"
#include "lockstep/datasets/text/internal/byte_pair_model.h"
#include "lockstep/datasets/text/internal/normalizer.h"
#include "lockstep/datasets/text/internal/pre_tokenizer.h"
#include "lockstep/datasets/text/internal/token_decoder.h"

namespace lockstep {

/// GPT-2's pattern of words, which files name as the pre-tokenizer "ByteLevel" instead of spelling it.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// All settings in the files of a tokenizer, in the order in which they apply to a text.
struct TokenizerParts {
  std::vector<AddedToken> added_tokens;  ///< each id and each text once
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  BytePairModel::Parts model;
  std::vector<uint32_t> ids_before;  ///< special tokens around a text
  std::vector<uint32_t> ids_after;
  std::vector<DecoderStep> decoder;  ///< for SymbolKind::kCharacters only
};

}  // namespace lockstep
