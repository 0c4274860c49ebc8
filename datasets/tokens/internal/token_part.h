#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/datasets/files/internal/open_file.h"
#include "lockstep/datasets/tokens/internal/token_layout.h"

namespace lockstep {

/// The tokens of one file, mapped into memory or held there. Thread-safe.
class TokenPart {
 public:
  /// Maps a file. Throws DataError as token_layout(), and naming the file if it cannot be read or is not a
  /// regular file.
  TokenPart(const std::string& path, TokenFormat format);
  /// Tokens in memory, in 2 or 4 bytes each. `path` is the file that they were made of.
  TokenPart(std::string path, std::string bytes, int bytes_per_token);

  const std::string& path() const { return path_; }
  uint64_t size() const { return layout_.num_tokens; }
  /// Bytes for each token, 2 or 4.
  int width() const { return layout_.bytes_per_token; }

  /// Throws DataError naming the file if its size has changed since it was mapped.
  void check_size() const;
  /// Copies the tokens from `first` on, which are there. Returns the largest one.
  uint32_t copy(uint64_t first, std::span<int64_t> into) const;
  /// Throws DataError naming the file, position and token if one of the `count` tokens from `first` on, which
  /// are there, is not below `vocab_size`.
  void check_tokens(uint64_t first, uint64_t count, uint32_t vocab_size) const;

 private:
  std::string path_;
  std::optional<OpenFile> file_;
  std::unique_ptr<MappedFile> mapped_;
  std::string held_;
  TokenLayout layout_;
  const char* tokens_ = nullptr;
};

}  // namespace lockstep
