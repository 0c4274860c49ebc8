#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/runtime/base/files/internal/input_file.h"

namespace lockstep {

/// One record of a zip archive.
struct ZipRecord {
  uint64_t begin = 0;     ///< offset of its bytes in the file
  uint64_t size = 0;      ///< in bytes
  uint32_t crc32 = 0;     ///< 0 if torch.save() wrote no checksums
  bool is_plain = false;  ///< neither compressed nor encrypted
};

/// Reads the directory of a zip archive as written by torch.save() (PKWARE's APPNOTE.TXT, 4.3, including
/// zip64). The returned records are within the file and do not overlap. Allocates at most a small multiple of
/// the directory's size. Throws CheckpointError naming the file and the record if the archive is damaged or a
/// name occurs twice.
std::map<std::string, ZipRecord> read_zip_directory(const InputFile& file);

}  // namespace lockstep
