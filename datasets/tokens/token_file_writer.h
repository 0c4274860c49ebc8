#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

struct TokenFileWriterOptions {
  std::string path;
  /// Tokens are below it. With up to 65,536, each takes 2 bytes, else 4.
  uint32_t vocab_size = 65536;
};

/// Writes a .bin file of tokens, in TokenFormat::kLlmC. The file gets its name by finish(), so other
/// processes never see a part of it. Not thread-safe.
///
/// Example:
///
///     TokenFileWriter writer({.path = "train.bin", .vocab_size = 50'257});
///     writer.append(tokens);
///     writer.finish();
class TokenFileWriter {
 public:
  /// Throws std::system_error naming the file if it cannot be written, as the other functions.
  explicit TokenFileWriter(const TokenFileWriterOptions& options);
  /// Removes the file unless it is finished.
  ~TokenFileWriter();
  TokenFileWriter(TokenFileWriter&&) noexcept;
  TokenFileWriter& operator=(TokenFileWriter&&) noexcept;

  /// Throws std::invalid_argument if a token is not below the size of the vocabulary, DataError if there are
  /// more than 2,147,483,647 tokens, and std::logic_error after finish().
  void append(std::span<const uint32_t> tokens);
  /// Blocks until the file is on the disk. Throws DataError naming the file if it has no tokens, and
  /// std::logic_error if it is finished already.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep
