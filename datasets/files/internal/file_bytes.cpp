#include "lockstep/datasets/files/internal/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_descriptor.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_system_error(const std::string& path, const char* action) {
  throw DataError(path + ": cannot " + action + ": " + std::generic_category().message(errno));
}

}  // namespace

std::vector<uint8_t> read_file(const std::string& path, uint64_t max_bytes) {
  // Opening a named pipe would wait for a writer; non-blocking, it fails the check for a regular file below.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system_error(path, "open");

  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system_error(path, "read the size");
  if (!S_ISREG(status.st_mode)) throw DataError(path + ": expected a regular file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > max_bytes) {
    throw DataError(path, "file size", "at most " + std::to_string(max_bytes) + " bytes",
                    std::to_string(size));
  }

  std::vector<uint8_t> bytes(size);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(path, "read");
    if (count == 0) {
      throw DataError(path, "file size", std::to_string(size) + " bytes as when it was opened",
                      std::to_string(done));
    }
    done += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace lockstep
