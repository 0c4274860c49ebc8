#include "lockstep/datasets/files/internal/open_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a file" : "a device";
}

}  // namespace

std::string kind_of_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? kind_of(status.st_mode) : "nothing";
}

// Opening a named pipe would wait for a writer; non-blocking, it fails the check for a regular file.
OpenFile::OpenFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  struct stat status {};
  // Sockets cannot be opened.
  const bool is_socket = !file_.is_open() && errno == ENXIO && ::stat(path_.c_str(), &status) == 0;
  if (!file_.is_open() && !is_socket) fail("open");
  if (!is_socket && ::fstat(file_.get(), &status) != 0) fail("read the size");
  if (is_socket || !S_ISREG(status.st_mode))
    throw DataError(path_ + ": expected a regular file, but it is " + kind_of(status.st_mode));
  ::fcntl(file_.get(), F_SETFL, 0);  // some network file systems heed O_NONBLOCK for regular files, too
}

int OpenFile::duplicate() const {
  const int copy = ::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail("open");
  return copy;
}

void OpenFile::fail(const char* action) const {
  throw DataError(path_ + ": cannot " + action + ": " + std::generic_category().message(errno));
}

FileVersion OpenFile::version() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail("read the size");
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return {.size = static_cast<uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec};
}

size_t OpenFile::read_at(uint64_t offset, char* into, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(file_.get(), into + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

MappedFile::MappedFile(const OpenFile& file) : size_(file.version().size) {
  if (size_ == 0) return;  // the system maps no empty files
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED)
    throw DataError(file.path() + ": cannot map it into memory: " + std::generic_category().message(errno));
  bytes_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) ::munmap(const_cast<char*>(bytes_), size_);
}

void MappedFile::release_pages() const {
  if (bytes_ != nullptr) ::madvise(const_cast<char*>(bytes_), size_, MADV_DONTNEED);
}

}  // namespace lockstep
