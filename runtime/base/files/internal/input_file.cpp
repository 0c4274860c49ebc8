#include "lockstep/runtime/base/files/internal/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Opening a named pipe would wait for a writer; non-blocking, it fails the check for a regular file below.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw_system_error("open");
  struct stat status {};
  const bool is_known = ::fstat(descriptor_, &status) == 0;
  if (is_known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    return;
  }
  const int error = errno;
  ::close(descriptor_);
  if (is_known) throw CheckpointError(path_ + ": expected a regular file");
  errno = error;
  throw_system_error("read the size");
}

InputFile::InputFile(std::string path, std::string_view bytes)
    : path_(std::move(path)), bytes_(bytes.data()), size_(bytes.size()) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(uint64_t offset, void* bytes, size_t count) const {
  if (offset > size_ || count > size_ - offset) {
    throw CheckpointError(path_, "file size",
                          "at least " + std::to_string(offset) + " + " + std::to_string(count) + " bytes",
                          std::to_string(size_));
  }
  if (bytes_ != nullptr) {
    if (count > 0) std::memcpy(bytes, bytes_ + offset, count);
    return;
  }
  auto* target = static_cast<char*>(bytes);
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, target + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read");
    if (got == 0) {
      throw CheckpointError(path_, "file size", std::to_string(size_) + " bytes as when it was opened",
                            std::to_string(offset + done));
    }
    done += static_cast<size_t>(got);
  }
}

void InputFile::throw_system_error(const char* action) const {
  const std::string text = path_ + ": cannot " + action + ": " + std::generic_category().message(errno);
  // The file is missing, or the disk has a bad block.
  if (errno == ENOENT || errno == EIO) throw CheckpointError(text);
  throw CheckpointUnreadable(text);
}

}  // namespace lockstep
