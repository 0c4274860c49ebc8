#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

/// The bytes of a file from its beginning to its end, decompressed. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to `size` bytes; fewer only at the end. Returns their number. Throws DataError naming the file
  /// if it cannot be read, is damaged, or ends too early.
  virtual size_t read(char* into, size_t size) = 0;
};

enum class Compression { kNone, kGzip, kZstd };

/// Returns how a file is compressed, judging by its first bytes. Throws DataError if the file cannot be read,
/// and if its name ends with .gz or .zst but its content is something else.
Compression compression_of(const std::string& path);

/// Opens a file that compression_of() knows. Compressed files may have several members or frames, one after
/// another. Throws DataError naming the file, also if it is a zstd file but this build of Lockstep cannot
/// read them.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

/// Opens a zstd file. In a build without libzstd, throws DataError.
std::unique_ptr<ByteSource> open_zstd_source(const std::string& path);

}  // namespace lockstep
