#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/datasets/tokens/token_format.h"

namespace lockstep {

/// Where the tokens of a file are.
struct TokenLayout {
  uint64_t first_byte = 0;
  int bytes_per_token = 2;  ///< 2 or 4
  uint64_t num_tokens = 0;
};

inline constexpr size_t kTokenHeaderBytes = 1024;

/// The beginning of a file, and the size of the whole.
struct TokenFileStart {
  std::string path;
  std::string_view bytes;  ///< kTokenHeaderBytes, or the whole file if it has fewer
  uint64_t file_size = 0;
};

/// Returns where the tokens are. Throws DataError naming the file if it has no tokens, ends within a token,
/// or has a header that does not fit `format` or the size of the file.
TokenLayout token_layout(const TokenFileStart& start, TokenFormat format);

/// Returns whether tokens below `vocab_size` are stored in 2 bytes.
bool fits_two_bytes(uint32_t vocab_size);

/// Free for the writer's use, in the header from its fourth number on.
using TokenHeaderNotes = std::array<uint64_t, 4>;

/// Returns a header of TokenFormat::kLlmC. `num_tokens` is at most kMaxTokens.
std::string token_header(const TokenLayout& layout, const TokenHeaderNotes& notes);
inline constexpr uint64_t kMaxTokens = INT32_MAX;

/// Returns the notes of a header that token_header() made. `header` has kTokenHeaderBytes.
TokenHeaderNotes token_header_notes(std::string_view header);

}  // namespace lockstep
