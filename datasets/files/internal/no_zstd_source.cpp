#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"

namespace lockstep {

std::unique_ptr<ByteSource> open_zstd_source(const std::string& path) {
  throw DataError(path +
                  ": this build of Lockstep reads no zstd files, as libzstd was not found when it was "
                  "configured (Debian: libzstd-dev); decompress the file with `zstd -d`, or build again");
}

}  // namespace lockstep
