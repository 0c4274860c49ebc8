#include "lockstep/runtime/base/files/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/internal/signal_guard.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_output_error(const std::string& path, const std::string& action, int error) {
  throw std::system_error(error, std::generic_category(), "cannot " + action + " '" + path + "'");
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0666;  // less the umask
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, kMode);
  if (descriptor_ < 0) throw_output_error(path_, "create", errno);
}

OutputFile::~OutputFile() {
  close();
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void OutputFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void OutputFile::append(std::span<const uint8_t> bytes) {
  const SignalGuard without_signal(SIGXFSZ);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count == 0 ? EIO : errno;
      // A torn record in the middle would hide all later records from readers.
      if (done > 0 && ::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) size_ += done;
      throw_output_error(path_, "write to", error);
    }
    done += static_cast<size_t>(count);
  }
  size_ += done;
}

void OutputFile::append(std::string_view text) {
  append(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void OutputFile::move_to(const std::string& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) throw_output_error(path, "replace", errno);
  path_ = path;
}

std::string name_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".new";
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string beside = name_beside(path);
  try {
    OutputFile file(beside);
    file.append(text);
    file.move_to(path);
  } catch (const std::system_error& error) {
    ::unlink(beside.c_str());
    throw_output_error(path, "write", error.code().value());
  }
}

}  // namespace lockstep
