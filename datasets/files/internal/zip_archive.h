#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct zip;  // libzip's handle

namespace lockstep {

/// What reading a zip refuses to allocate, whatever the archive declares.
struct ZipLimits {
  uint64_t max_entry_bytes = uint64_t{256} << 20;
  /// Inflated size over compressed size, for entries that inflate to more than 1 MiB.
  uint64_t max_compression_ratio = 200;
};

/// A file or, where the name ends with '/', a folder in a zip archive.
struct ZipEntry {
  std::string name;
  uint64_t index = 0;  ///< position in the archive's directory
  uint64_t size = 0;   ///< bytes when inflated
};

/// Lists a zip archive in the order of its directory, after checking every entry. Throws DataError for a file
/// that is no zip or is cut off, and for an entry with an absolute name, a name with `..`, `.`, an empty
/// part, a backslash or a drive, a name that occurs twice, a symbolic link or special file, encryption, and a
/// size above the limits.
std::vector<ZipEntry> list_zip(const std::string& path, const ZipLimits& limits = {});

/// Reads entries straight out of a zip archive; nothing is written to disk. A reader is for one thread at a
/// time: several threads take one each.
class ZipReader {
 public:
  /// Opens the archive. Throws DataError where that fails.
  explicit ZipReader(std::string path);
  ~ZipReader();
  ZipReader(ZipReader&&) noexcept;
  ZipReader& operator=(ZipReader&&) noexcept;

  /// Returns the inflated bytes of an entry that list_zip() gave for this archive, `entry.size` of them.
  /// Throws DataError naming archive and entry where the checksum is wrong, data are missing, or the archive
  /// is no longer the one listed.
  std::vector<uint8_t> read(const ZipEntry& entry);

 private:
  struct Close {
    void operator()(::zip* archive) const;
  };

  std::string path_;
  std::unique_ptr<::zip, Close> archive_;
};

}  // namespace lockstep
