#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/datasets/tokens/internal/token_part.h"
#include "lockstep/datasets/tokens/text_encoding.h"

namespace lockstep {

struct TokenizedText {
  std::string path;
  TextEncoding encoding;
  uint32_t vocab_size = 0;
  std::string parquet_column{};  ///< of Parquet files, whose path may be a URI
  std::string cache_folder{};
  uint64_t max_bytes_in_memory = 0;
  std::function<void(const std::string&)> on_message{};
};

/// Returns the tokens of a text file, with the end-of-text token after each document. They are kept in the
/// cache folder, and written there first if they are missing; without a cache folder, they are in memory.
/// Throws DataError as read_documents() and read_parquet_documents(), and naming the file if it changes
/// meanwhile, if it has too many tokens, if the tokenizer throws DataError, or if it returns a token that is
/// not below `vocab_size`. Throws std::system_error naming the cache's file if it cannot be written.
std::unique_ptr<const TokenPart> tokenize_text(const TokenizedText& text);

}  // namespace lockstep
