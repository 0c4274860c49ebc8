#include "lockstep/datasets/files/internal/cache_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// A part is also a lock, which anybody who can open it for reading could take, too.
constexpr mode_t kOnlyThisUser = 0600;

[[noreturn]] void throw_cache_error(const std::string& path, const std::string& action) {
  throw std::system_error(errno, std::generic_category(), "cannot " + action + " '" + path + "'");
}

/// Keeps a file that may not grow from ending the process by SIGXFSZ; write() then fails with EFBIG.
class FileSizeSignalGuard {
 public:
  FileSizeSignalGuard() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~FileSizeSignalGuard() {
    constexpr timespec kAtOnce{};
    if (!was_pending_) sigtimedwait(&held_, nullptr, &kAtOnce);  // would be delivered now
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalGuard(const FileSizeSignalGuard&) = delete;
  FileSizeSignalGuard& operator=(const FileSizeSignalGuard&) = delete;

 private:
  bool was_pending_ = false;
  sigset_t held_{};
  sigset_t before_{};
};

std::string part_name(const std::string& path) {
  return path + ".part";
}

/// Returns a name that no other process uses. Processes of several hosts, whose ids may be equal, can share
/// the folder, so it is drawn by chance.
std::string own_part_name(const std::string& path) {
  std::random_device random;
  const uint64_t drawn = (uint64_t{random()} << 32) | random();
  return path + "." + std::to_string(drawn) + ".part";
}

FileDescriptor create_part(const std::string& part, bool is_sole) {
  const int exclusive = is_sole ? 0 : O_EXCL;
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | exclusive;
  FileDescriptor file(::open(part.c_str(), flags, kOnlyThisUser));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) throw_cache_error(part, "create");
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    throw_cache_error(part, "write to");
  }
  // An earlier version of Lockstep may have left one that others can read.
  if (status.st_uid == ::geteuid() && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    (void)::fchmod(file.get(), kOnlyThisUser);
  return file;
}

/// Returns the mode that new files of this process have. umask() itself would change it for other threads.
mode_t mode_of_new_files() {
  const mode_t all = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    unsigned mask = 0;
    if (word == "Umask:" && status >> std::oct >> mask) return all & ~mask;
  }
  return kOnlyThisUser;
}

/// A process's attempt to be the one that builds a file. The part itself is locked: the lock ends with the
/// process, whatever ends it.
enum class Attempt { kGranted, kHeldByAnother, kReplaced, kHasNoLocks };

Attempt lock_part(const FileDescriptor& file, const std::string& part) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0)
    return errno == EAGAIN || errno == EACCES ? Attempt::kHeldByAnother : Attempt::kHasNoLocks;
  struct stat opened {};
  struct stat named {};
  const bool is_same = ::fstat(file.get(), &opened) == 0 && ::stat(part.c_str(), &named) == 0 &&
                       opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  return is_same ? Attempt::kGranted : Attempt::kReplaced;
}

/// Tells whether another process's part has not grown for long.
class StallWatch {
 public:
  bool is_stalled(const FileDescriptor& file) {
    // Long, since a builder also waits for the disk to take what it has written.
    constexpr std::chrono::minutes kPatience{5};
    struct stat status {};
    const auto now = Clock::now();
    if (::fstat(file.get(), &status) != 0 || status.st_size == size_) return now - since_ > kPatience;
    size_ = status.st_size;
    since_ = now;
    return false;
  }

 private:
  off_t size_ = -1;
  Clock::time_point since_ = Clock::now();
};

}  // namespace

NewFile::NewFile(std::string path, bool is_sole)
    : path_(std::move(path)), part_(is_sole ? part_name(path_) : own_part_name(path_)), is_sole_(is_sole) {
  file_ = create_part(part_, is_sole_);
  if (::ftruncate(file_.get(), 0) != 0) throw_cache_error(part_, "empty");
}

NewFile::NewFile(std::string path, std::string part, FileDescriptor file, bool is_sole)
    : path_(std::move(path)), part_(std::move(part)), file_(std::move(file)), is_sole_(is_sole) {
  if (::ftruncate(file_.get(), 0) != 0) throw_cache_error(part_, "empty");
}

NewFile::~NewFile() {
  if (!part_.empty()) ::unlink(part_.c_str());  // before the descriptor's lock ends
}

void NewFile::append(std::string_view bytes) {
  write_at(size_, bytes);
  size_ += bytes.size();
}

void NewFile::overwrite(uint64_t offset, std::string_view bytes) {
  write_at(offset, bytes);
}

void NewFile::write_at(uint64_t offset, std::string_view bytes) {
  const FileSizeSignalGuard without_signal;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;
    if (count <= 0) throw_cache_error(part_, "write to");
    done += static_cast<size_t>(count);
  }
}

void NewFile::commit() {
  (void)::fchmod(file_.get(), mode_of_new_files());  // some file systems have no modes to change
  if (::fsync(file_.get()) != 0) throw_cache_error(part_, "write to");
  if (::rename(part_.c_str(), path_.c_str()) != 0) throw_cache_error(path_, "replace");
  part_.clear();
}

void build_cache_file(const std::string& path, const CacheBuild& build) {
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  const std::string part = part_name(path);
  std::optional<StallWatch> watch;
  while (!build.is_ready()) {
    FileDescriptor file = create_part(part, /*is_sole=*/true);
    const Attempt attempt = lock_part(file, part);
    if (attempt == Attempt::kReplaced) continue;
    if (attempt == Attempt::kHeldByAnother) {
      if (!watch) {
        watch.emplace();
        build.on_wait();
      }
      if (!watch->is_stalled(file)) {
        std::this_thread::sleep_for(kBetweenLooks);
        continue;
      }
    }
    if (attempt == Attempt::kGranted) {
      NewFile sole(path, part, std::move(file), /*is_sole=*/true);
      if (build.is_ready()) return;  // another process has built it before this one took the part
      build.write(sole);
      sole.commit();
    } else {
      NewFile own(path, /*is_sole=*/false);
      build.write(own);
      own.commit();
    }
    return;
  }
}

}  // namespace lockstep
