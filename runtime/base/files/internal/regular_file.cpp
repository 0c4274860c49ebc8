#include "lockstep/runtime/base/files/internal/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a device";
}

[[noreturn]] void refuse_kind(const std::string& path, mode_t mode) {
  throw NotARegularFile(path + ": expected a regular file, but it is " + kind_of(mode));
}

[[noreturn]] void refuse(const std::string& path, const char* action, int error) {
  throw std::system_error(error, std::generic_category(),
                          std::string("cannot ") + action + " '" + path + "'");
}

}  // namespace

RegularFile::RegularFile(std::string path, Links links) : path_(std::move(path)) {
  // Without O_NONBLOCK, open() would wait for the other end of a named pipe.
  const int no_link = links == Links::kRefused ? O_NOFOLLOW : 0;
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | no_link);
  struct stat status {};
  if (descriptor_ < 0) {
    const int error = errno;
    // A socket cannot be opened, nor a link that may not be followed.
    const bool is_kind = error == ENXIO || (error == ELOOP && links == Links::kRefused);
    if (is_kind && ::lstat(path_.c_str(), &status) == 0) refuse_kind(path_, status.st_mode);
    refuse(path_, "open", error);
  }
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (error != 0) refuse(path_, "read the size of", error);
    refuse_kind(path_, status.st_mode);
  }
  ::fcntl(descriptor_, F_SETFL, 0);  // some network file systems heed O_NONBLOCK for regular files, too
  size_ = static_cast<uint64_t>(status.st_size);
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

size_t RegularFile::read_at(uint64_t offset, void* bytes, size_t count) const {
  auto* target = static_cast<char*>(bytes);
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, target + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path_, "read", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::string RegularFile::read_start(size_t max_bytes) const {
  std::string bytes(std::min<uint64_t>(size_, max_bytes), '\0');
  bytes.resize(read_at(0, bytes.data(), bytes.size()));
  return bytes;
}

/// Returns false at the end of the file.
bool LineReader::fill() {
  constexpr size_t kAtOnce = size_t{64} << 10;
  buffer_.resize(kAtOnce);
  buffer_.resize(file_.read_at(offset_, buffer_.data(), buffer_.size()));
  offset_ += buffer_.size();
  next_ = 0;
  return !buffer_.empty();
}

bool LineReader::next() {
  line_.clear();
  is_cut_ = is_whole_ = false;
  bool is_any = false;
  while (!is_whole_ && (next_ < buffer_.size() || fill())) {
    is_any = true;
    const size_t found = buffer_.find('\n', next_);
    const size_t end = std::min(found, buffer_.size());
    const size_t kept = std::min(end - next_, longest_ - line_.size());
    line_.append(buffer_, next_, kept);
    is_cut_ = is_cut_ || kept < end - next_;
    is_whole_ = found != std::string::npos;
    next_ = is_whole_ ? end + 1 : end;
  }
  return is_any;
}

}  // namespace lockstep
