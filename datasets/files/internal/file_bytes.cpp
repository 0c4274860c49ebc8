#include "lockstep/datasets/files/internal/file_bytes.h"

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {

std::vector<uint8_t> read_file(const std::string& path, uint64_t max_bytes) {
  const OpenFile file(path);
  const uint64_t size = file.version().size;
  if (size > max_bytes) {
    throw DataError(path, "file size", "at most " + std::to_string(max_bytes) + " bytes",
                    std::to_string(size));
  }

  std::vector<uint8_t> bytes(size);
  const size_t done = file.read_at(0, reinterpret_cast<char*>(bytes.data()), bytes.size());
  if (done < bytes.size()) {
    throw DataError(path, "file size", std::to_string(size) + " bytes as when it was opened",
                    std::to_string(done));
  }
  return bytes;
}

}  // namespace lockstep
