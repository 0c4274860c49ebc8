#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/files/internal/cache_file.h"
#include "lockstep/datasets/tokens/internal/token_layout.h"

namespace lockstep {

/// Appends tokens to bytes, in `width` bytes each, 2 or 4.
void append_tokens(std::string& bytes, std::span<const uint32_t> tokens, int width);

/// Writes tokens in TokenFormat::kLlmC into a new file. The caller commits it.
class TokenOutput {
 public:
  TokenOutput(NewFile& file, std::string path, int width);

  /// Throws DataError naming the file if there are more than kMaxTokens, and std::system_error if the system
  /// refuses to write.
  void append(std::span<const uint32_t> tokens);
  /// Writes the header.
  void finish(const TokenHeaderNotes& notes);
  uint64_t num_tokens() const { return layout_.num_tokens; }

 private:
  NewFile* file_;
  std::string path_;
  TokenLayout layout_;
  std::string bytes_;
};

}  // namespace lockstep
