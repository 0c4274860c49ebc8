#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/runtime/base/files/internal/input_file.h"

namespace lockstep {

/// A record of a zip archive.
struct ZipRecord {
  uint64_t begin = 0;     ///< of its bytes in the file
  uint64_t size = 0;      ///< of these
  uint32_t crc32 = 0;     ///< 0 where torch.save() was told to leave checksums out
  bool is_plain = false;  ///< neither compressed nor encrypted
};

/// The directory of a zip archive as torch.save() writes it (PKWARE's APPNOTE.TXT, 4.3, zip64 included). The
/// records lie within the file and do not overlap. Allocates no more than a small multiple of the directory's
/// size. Throws CheckpointError naming the file, and the record, for a damaged one and for a name given
/// twice.
std::map<std::string, ZipRecord> read_zip_directory(const InputFile& file);

}  // namespace lockstep
