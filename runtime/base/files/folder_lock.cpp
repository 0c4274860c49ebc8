#include "lockstep/runtime/base/files/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

[[noreturn]] void throw_refused(const std::string& action, const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), "cannot " + action + " '" + path + "'");
}

/// Locks of an open file description: unlike flock's, they can be queried without being taken.
struct flock whole_file_lock() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool is_held_by_another(int error) {
  return error == EAGAIN || error == EACCES;
}

/// Some cluster file systems have no locks.
bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

std::string line_without_breaks(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

/// The first line is for people; the others are for owner_in().
std::string owner_text(const FolderOwner& owner) {
  return owner.describe() + "\n" + owner.host + "\n" + std::to_string(owner.process) + "\n" +
         line_without_breaks(owner.job) + "\n" + std::to_string(owner.generation) + "\n";
}

/// Opens a lock file, or creates it, so that only this user can read it: anybody who can open it for reading
/// can take a shared lock, and nobody could own the folder then. `flags` are further ones of open().
int open_lock_file(const std::string& path, int flags) {
  constexpr mode_t kOnlyThisUser = 0600;
  const int file =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, kOnlyThisUser);
  if (file < 0) throw_refused("create", path, errno);
  struct stat status {};
  const bool is_file = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file) {
    ::close(file);
    throw_refused("lock", path, EINVAL);
  }
  // One that an earlier version of Lockstep left behind. Some file systems have no modes to change.
  const bool is_open_to_others = (status.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (status.st_uid == ::geteuid() && is_open_to_others) (void)::fchmod(file, kOnlyThisUser);
  return file;
}

/// Reads the beginning of an open lock file.
std::optional<FolderOwner> owner_in(int descriptor) {
  constexpr size_t kLongest = 4096;
  std::string text(kLongest, '\0');
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  std::istringstream file(text);
  FolderOwner owner;
  std::string line;
  const bool is_whole = std::getline(file, line) && std::getline(file, owner.host) &&
                        std::getline(file, line) && (std::istringstream(line) >> owner.process) &&
                        std::getline(file, owner.job) && std::getline(file, line) &&
                        (std::istringstream(line) >> owner.generation);
  if (!is_whole) return std::nullopt;
  return owner;
}

std::string named_owner(const std::optional<FolderOwner>& owner) {
  constexpr size_t kLongestHost = 300;
  return owner && owner->host.size() <= kLongestHost ? owner->describe() : "another process";
}

bool is_later_generation(const FolderOwner& now, const std::optional<FolderOwner>& before) {
  return before && !now.job.empty() && now.job == before->job && now.generation > before->generation;
}

/// Used if the system has no locks. Nothing is known about processes on other hosts.
bool is_gone(const FolderOwner& owner, const std::string& this_host) {
  return owner.host == this_host && ::kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH;
}

}  // namespace

FolderOwner FolderOwner::here(const std::string& job, int64_t generation) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return {.host = host.data(), .process = ::getpid(), .job = job, .generation = generation};
}

std::string FolderOwner::describe() const {
  return "process " + std::to_string(process) + " on " + host;
}

FolderLock::FolderLock(std::string path, const FolderOwner& owner) : path_(std::move(path)) {
  while (!try_take(owner)) {
  }
}

/// Returns false if the file disappeared in the meantime.
bool FolderLock::try_take(const FolderOwner& owner) {
  descriptor_ = open_lock_file(path_, 0);
  try {
    struct flock lock = whole_file_lock();
    if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) {
      const int error = errno;
      const auto before = owner_in(descriptor_);
      const bool is_stale = has_no_locks(error) && (!before || is_gone(*before, owner.host));
      if (is_later_generation(owner, before)) {
        take_over(owner);
        return true;
      }
      if (is_held_by_another(error) || (has_no_locks(error) && !is_stale))
        throw FolderInUse(named_owner(before));
      if (!is_stale) throw_refused("lock", path_, error);
    }
    if (!holds()) {
      ::close(std::exchange(descriptor_, -1));
      return false;
    }
    const std::string text = owner_text(owner);
    if (::ftruncate(descriptor_, 0) != 0 || ::write(descriptor_, text.data(), text.size()) < 0)
      throw_refused("write", path_, errno);
    return true;
  } catch (...) {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    throw;
  }
}

/// Puts a new file in place of the one that an earlier generation may still hold.
void FolderLock::take_over(const FolderOwner& owner) {
  ::close(std::exchange(descriptor_, -1));
  const std::string beside =
      path_ + ".generation-" + std::to_string(owner.generation) + "-" + std::to_string(owner.process);
  descriptor_ = open_lock_file(beside, O_TRUNC);
  struct flock lock = whole_file_lock();
  ::fcntl(descriptor_, F_OFD_SETLK, &lock);  // nobody else knows the file; without locks, it has none
  const std::string text = owner_text(owner);
  if (::write(descriptor_, text.data(), text.size()) < 0 || std::rename(beside.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    throw_refused("write", path_, error);
  }
}

bool FolderLock::holds() const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  if (holds()) ::unlink(path_.c_str());  // before unlocking: until then it is this process's file
  ::close(descriptor_);
}

std::string folder_owner(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return errno == EACCES ? "a process of another user" : "";
  struct stat status {};
  struct flock lock = whole_file_lock();
  const bool is_held = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                       ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  std::string owner = is_held ? named_owner(owner_in(file)) : "";
  ::close(file);
  return owner;
}

}  // namespace lockstep
