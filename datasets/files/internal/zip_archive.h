#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct zip;  // libzip's handle

namespace lockstep {

/// Limits on memory when reading a zip archive, whatever the archive declares.
struct ZipLimits {
  uint64_t max_entry_bytes = uint64_t{256} << 20;
  /// Inflated size divided by compressed size, for entries that inflate to more than 1 MiB.
  uint64_t max_compression_ratio = 200;
};

/// A file in a zip archive, or a folder if the name ends with '/'.
struct ZipEntry {
  std::string name;
  uint64_t index = 0;  ///< position in the archive's directory
  uint64_t size = 0;   ///< bytes when inflated
};

/// Lists a zip archive in the order of its directory after checking every entry. Throws DataError if the file
/// is not a zip archive or is truncated. Also throws it for an entry that has an absolute name, a name with
/// `..`, `.`, an empty part, a backslash or a drive, or a repeated name; that is a symbolic link or special
/// file; that is encrypted; or that exceeds the limits.
std::vector<ZipEntry> list_zip(const std::string& path, const ZipLimits& limits = {});

/// Reads entries directly from a zip archive; writes nothing to disk. Not thread-safe: use one reader per
/// thread.
class ZipReader {
 public:
  /// Opens the archive. Throws DataError on failure.
  explicit ZipReader(std::string path);
  ~ZipReader();
  ZipReader(ZipReader&&) noexcept;
  ZipReader& operator=(ZipReader&&) noexcept;

  /// Returns the `entry.size` inflated bytes of an entry that list_zip() returned for this archive. Throws
  /// DataError naming archive and entry if the checksum is wrong, data is missing, or the archive has changed
  /// since it was listed.
  std::vector<uint8_t> read(const ZipEntry& entry);

 private:
  struct Close {
    void operator()(::zip* archive) const;
  };

  std::string path_;
  std::unique_ptr<::zip, Close> archive_;
};

}  // namespace lockstep
