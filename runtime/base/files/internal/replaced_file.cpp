#include "lockstep/runtime/base/files/internal/replaced_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/signal_guard.h"

namespace lockstep {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Makes the new name survive a power failure. Some file systems cannot do this, and need not.
void synchronize_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

ReplacedFile::ReplacedFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw InvalidArgument(path_ + ": expected a regular file or none to write to");
  const std::string stem = path_ + ".partial-" + std::to_string(::getpid());
  // Threads may write the same path at once.
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    partial_path_ = stem + "-" + std::to_string(attempt);
    descriptor_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) throw_system_error("write");
  }
}

ReplacedFile::~ReplacedFile() {
  if (descriptor_ < 0) return;
  close_quietly();
  ::unlink(partial_path_.c_str());
}

void ReplacedFile::write(const void* bytes, size_t count) {
  const SignalGuard without_signal(SIGXFSZ);
  const auto* source = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, source, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error("write");
    source += written;
    count -= static_cast<size_t>(written);
  }
}

void ReplacedFile::commit() {
  if (::fsync(descriptor_) != 0) throw_system_error("write");
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) throw_system_error("replace");
  close_quietly();
  synchronize_folder(folder_of(path_));
}

void ReplacedFile::throw_system_error(const char* action) const {
  throw std::system_error(errno, std::generic_category(), std::string("cannot ") + action + " " + path_);
}

void ReplacedFile::close_quietly() {
  ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace lockstep
